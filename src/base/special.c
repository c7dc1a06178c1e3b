/* base/special.c: log-gamma and, in polygamma.h, its derivatives. */
#include "base/special.h"

#include <math.h>

#include "base/polygamma.h"

double gd_special_lgamma(double x)
{
#if defined(__GLIBC__)
    int sign;
    return lgamma_r(x, &sign);
#else
    return lgamma(x);
#endif
}

double gd_special_polygamma(double order, double x)
{
    return polygamma(order, x);
}
