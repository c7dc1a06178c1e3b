/* base/special.h: special functions of doubles, one number at a time, for which speed matters less
 * than size: called from the loops of every instruction set. */
#ifndef GD_BASE_SPECIAL_H
#define GD_BASE_SPECIAL_H

/* log |gamma(x)|: the C library's, without its global sign. */
double gd_special_lgamma(double x);

/* The (order + 1)-th derivative of log gamma at x, of the whole part of order, 0 … 100: 0 is
 * digamma. NaN for other orders, at the poles of digamma but 0, and for other orders below x =
 * -10^6; +inf or -inf at other poles. Within 8 ulp, absolute 1e-15 near the zeros of digamma. */
double gd_special_polygamma(double order, double x);

#endif
