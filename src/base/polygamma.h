/* base/polygamma.h: the derivatives of log-gamma, see gd_special_polygamma in special.h. Digamma
 * and the Hurwitz zeta function come from their asymptotic series, which are good from 10 on;
 * smaller arguments are led there by recurrence, negative ones of digamma by reflection. Abramowitz
 * and Stegun 1964, 6.3.5 … 6.4.10; Euler and Maclaurin's formula for zeta.
 *
 * A header, because the text goes into exported C as well; included by special.c alone. */
#ifndef GD_BASE_POLYGAMMA_H
#define GD_BASE_POLYGAMMA_H

#include <math.h>

/* B(2k) / (2k)! for k = 1 … 12, B the Bernoulli numbers */
static const double bernoulli_ratio[] = {
    1.0 / 12,
    -1.0 / 720,
    1.0 / 30240,
    -1.0 / 1209600,
    1.0 / 47900160,
    -691.0 / 1307674368000.0,
    1.0 / 74724249600.0,
    -3617.0 / 10670622842880000.0,
    43867.0 / 5109094217170944000.0,
    -174611.0 / 802857662698291200000.0,
    77683.0 / 14101100039391805440000.0,
    -236364091.0 / 1693824136731743669452800000.0,
};

/* The derivative of log gamma. */
static double digamma(double x)
{
    const double pi = 3.14159265358979323846;
    /* B(2k) / (2k) */
    static const double series[] = { 1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                     1.0 / 132, -691.0 / 32760, 1.0 / 12,  -3617.0 / 8160 };
    if (x == 0)
        return copysign(INFINITY, -x);
    double shift = 0;
    if (x < 0) {
        double part = x - rint(x); /* tan has the period pi */
        if (part == 0)
            return NAN;
        shift = -pi / tan(pi * part);
        x = 1 - x;
    }
    while (x < 10) {
        shift -= 1 / x;
        x += 1;
    }
    double square = 1 / (x * x), sum = 0;
    for (int k = 7; k >= 0; k--)
        sum = (sum + series[k]) * square;
    return isinf(x) ? x : log(x) - 0.5 / x - sum + shift;
}

/* sum over k >= 0 of (q + k)^-s, s = 2, 3, … */
static double zeta(double s, double q)
{
    if (q <= 0 && q == floor(q))
        return INFINITY;
    double sum = 0;
    const double least = 10 + s;
    while (q < least) {
        sum += pow(q, -s);
        q += 1;
    }
    double power = pow(q, -s);
    sum += power * q / (s - 1) + power / 2;
    double factor = s * power / q;
    for (int k = 0; k < 12; k++) {
        double term = bernoulli_ratio[k] * factor;
        sum += term;
        if (fabs(term) < fabs(sum) * 1e-18)
            break;
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (q * q);
    }
    return sum;
}

/* The (order + 1)-th derivative of log gamma. */
static double polygamma(double order, double x)
{
    double n = trunc(order);
    if (!(n >= 0 && n <= 100) || isnan(x))
        return NAN;
    if (n == 0)
        return x == -INFINITY ? NAN : digamma(x);
    if (x < -1e6)
        return NAN;
    if (isinf(x))
        return 0;
    double sign = fmod(n, 2) == 0 ? -1 : 1;
    return sign * tgamma(n + 1) * zeta(n + 1, x);
}

#endif
