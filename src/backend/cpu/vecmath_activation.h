/* backend/cpu/vecmath_activation.h: GELU, its tanh approximation, SiLU, and their gradients, in both
 * precisions. Included by vecmath.h, which explains the rules. Each operation rounds as the op of
 * its name would, and the terms of a gradient are added in the order in which reverse-mode
 * differentiation of those ops adds them (tests/test_activation_bits.c). */
#ifndef GD_BACKEND_CPU_VECMATH_ACTIVATION_H
#define GD_BACKEND_CPU_VECMATH_ACTIVATION_H

/* ---- single precision ---- */

/* x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2 */
GD_INLINE float gd_gelu_f32(float x)
{
    return x * 0.5f * (gd_erf_f32(x * 0.70710678118654752440f) + 1.0f);
}

/* g (Phi(x) + x Phi'(x)) */
GD_INLINE float gd_gelu_grad_f32(float g, float x)
{
    float scaled = x * 0.70710678118654752440f;
    float slope = gd_exp_f32(-(scaled * scaled)) * 1.12837916709551257390f; /* of erf */
    float through_erf = g * (x * 0.5f) * slope * 0.70710678118654752440f;
    return through_erf + g * (gd_erf_f32(scaled) + 1.0f) * 0.5f;
}

/* sqrt(2 / pi) (x + 0.044715 x^3), where term = 0.044715 x^2 */
GD_INLINE float gd_gelu_tanh_inner_f32(float x, float term)
{
    return (x + term * x) * 0.79788456080286535588f;
}

/* x / 2 (1 + tanh inner) */
GD_INLINE float gd_gelu_tanh_f32(float x)
{
    float inner = gd_gelu_tanh_inner_f32(x, x * x * 0.044715f);
    return x * 0.5f * (gd_tanh_f32(inner) + 1.0f);
}

/* g (1 + tanh inner) / 2 + g x / 2 (1 - tanh^2 inner) inner', the latter in three terms */
GD_INLINE float gd_gelu_tanh_grad_f32(float g, float x)
{
    float term = x * x * 0.044715f;
    float t = gd_tanh_f32(gd_gelu_tanh_inner_f32(x, term));
    float to_sum = g * (x * 0.5f) * (1.0f - t * t) * 0.79788456080286535588f;
    float through_tanh = to_sum + to_sum * term + to_sum * x * 0.044715f * x * 2.0f;
    return through_tanh + g * (t + 1.0f) * 0.5f;
}

/* x sigmoid(x) */
GD_INLINE float gd_silu_f32(float x)
{
    return x * gd_sigmoid_f32(x);
}

/* g sigmoid(x) + g x sigmoid'(x) */
GD_INLINE float gd_silu_grad_f32(float g, float x)
{
    float s = gd_sigmoid_f32(x);
    return g * s + g * x * (s * (1.0f - s));
}

/* ---- double precision ---- */

/* x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2 */
GD_INLINE double gd_gelu_f64(double x)
{
    return x * 0.5 * (gd_erf_f64(x * 0.70710678118654752440) + 1.0);
}

/* g (Phi(x) + x Phi'(x)) */
GD_INLINE double gd_gelu_grad_f64(double g, double x)
{
    double scaled = x * 0.70710678118654752440;
    double slope = gd_exp_f64(-(scaled * scaled)) * 1.12837916709551257390; /* of erf */
    double through_erf = g * (x * 0.5) * slope * 0.70710678118654752440;
    return through_erf + g * (gd_erf_f64(scaled) + 1.0) * 0.5;
}

/* sqrt(2 / pi) (x + 0.044715 x^3), where term = 0.044715 x^2 */
GD_INLINE double gd_gelu_tanh_inner_f64(double x, double term)
{
    return (x + term * x) * 0.79788456080286535588;
}

/* x / 2 (1 + tanh inner) */
GD_INLINE double gd_gelu_tanh_f64(double x)
{
    double inner = gd_gelu_tanh_inner_f64(x, x * x * 0.044715);
    return x * 0.5 * (gd_tanh_f64(inner) + 1.0);
}

/* g (1 + tanh inner) / 2 + g x / 2 (1 - tanh^2 inner) inner', the latter in three terms */
GD_INLINE double gd_gelu_tanh_grad_f64(double g, double x)
{
    double term = x * x * 0.044715;
    double t = gd_tanh_f64(gd_gelu_tanh_inner_f64(x, term));
    double to_sum = g * (x * 0.5) * (1.0 - t * t) * 0.79788456080286535588;
    double through_tanh = to_sum + to_sum * term + to_sum * x * 0.044715 * x * 2.0;
    return through_tanh + g * (t + 1.0) * 0.5;
}

/* x sigmoid(x) */
GD_INLINE double gd_silu_f64(double x)
{
    return x * gd_sigmoid_f64(x);
}

/* g sigmoid(x) + g x sigmoid'(x) */
GD_INLINE double gd_silu_grad_f64(double g, double x)
{
    double s = gd_sigmoid_f64(x);
    return g * s + g * x * (s * (1.0 - s));
}

#endif
