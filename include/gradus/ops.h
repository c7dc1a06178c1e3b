/* gradus/ops.h: what can be computed with tensors. Each function builds one or more ops and gives
 * the result as a temporary of the operands' context; NULL operands give NULL. Errors: GD_ERR_SHAPE
 * and GD_ERR_DTYPE where shapes or dtypes do not fit, GD_ERR_MEMORY. Names and meanings are NumPy's
 * and PyTorch's. Broadcasting and promotion: gradus/tensor.h. Eager, an op runs when it is called;
 * inside gd_compile's function it is recorded. A function that has nothing to do may give x itself
 * (padding by nothing, a cast to x's own dtype); one that is said to make a copy always does.
 * Derivatives stand beside the ops in src/ops/. Losses: gradus/loss.h. Normalisation:
 * gradus/norm.h.
 */
#ifndef GRADUS_OPS_H
#define GRADUS_OPS_H

#include <gradus/loss.h>
#include <gradus/norm.h>
#include <gradus/tensor.h>

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- arithmetic, elementwise, broadcasting ---- */

/* x + y; integers wrap */
GD_API gd_tensor *gd_add(gd_tensor *x, gd_tensor *y);
/* x - y */
GD_API gd_tensor *gd_sub(gd_tensor *x, gd_tensor *y);
/* x * y */
GD_API gd_tensor *gd_mul(gd_tensor *x, gd_tensor *y);
/* x / y; integers are divided as f32 */
GD_API gd_tensor *gd_div(gd_tensor *x, gd_tensor *y);
/* floor(x / y); integers by 0 give 0 */
GD_API gd_tensor *gd_floor_div(gd_tensor *x, gd_tensor *y);
/* x - y * floor(x / y), the sign of y (Python) */
GD_API gd_tensor *gd_mod(gd_tensor *x, gd_tensor *y);
/* x - y * trunc(x / y), the sign of x (C); integers by 0 give 0 */
GD_API gd_tensor *gd_fmod(gd_tensor *x, gd_tensor *y);
/* x ^ y, C99's special cases; integers as f32; the gradient of x^0 by x is 0 for every x */
GD_API gd_tensor *gd_pow(gd_tensor *x, gd_tensor *y);
/* x ^ y of integers, wrapping; 0 ^ 0 is 1. 1 and -1 have whole powers with y < 0; those of all
 * others are 0. Floats are refused. */
GD_API gd_tensor *gd_integer_pow(gd_tensor *x, gd_tensor *y);
/* the larger; NaN if either is; a tie shares the gradient equally */
GD_API gd_tensor *gd_maximum(gd_tensor *x, gd_tensor *y);
/* the smaller, likewise */
GD_API gd_tensor *gd_minimum(gd_tensor *x, gd_tensor *y);
/* the angle of the point (x, y): atan(y / x) by quadrant */
GD_API gd_tensor *gd_atan2(gd_tensor *y, gd_tensor *x);
/* -x */
GD_API gd_tensor *gd_neg(gd_tensor *x);
/* |x| */
GD_API gd_tensor *gd_abs(gd_tensor *x);
/* -1, 0 (of both zeros), 1; NaN stays */
GD_API gd_tensor *gd_sign(gd_tensor *x);
/* |x| with the sign of y; the gradient by x at 0 is 0 */
GD_API gd_tensor *gd_copysign(gd_tensor *x, gd_tensor *y);
/* the number of the (float) dtype that is next to x in the direction of y; of f16 and bf16, which are
 * computed in f32, x itself */
GD_API gd_tensor *gd_nextafter(gd_tensor *x, gd_tensor *y);
/* x rounded to the 8 binary digits that bf16 has, up or down as y says, a whole number in 0 ... 65535: y is
 * added to the digits behind the eighth, counted in units of 2^-16 of that one, and what is behind is cut
 * off. So x that bf16 can hold stays, and where y is drawn evenly, the mean of the results is x: stochastic
 * rounding, as optimizers use it (gradus/optim.h). Numbers whose result might be infinite are rounded to
 * nearest; NaN and infinities stay. The dtype is that of the operands, whose range the result has. Gupta et
 * al., "Deep learning with limited numerical precision", 2015. */
GD_API gd_tensor *gd_round_bf16(gd_tensor *x, gd_tensor *y);
/* 0 where x is subnormal, else x; of f16 and bf16, which are computed in f32, what is subnormal there.
 * Processors take up to a hundred times as long to multiply subnormal numbers. The gradient goes through. */
GD_API gd_tensor *gd_flush_subnormal(gd_tensor *x);
/* x * x */
GD_API gd_tensor *gd_square(gd_tensor *x);
/* 1 / x */
GD_API gd_tensor *gd_reciprocal(gd_tensor *x);
/* square root, correctly rounded */
GD_API gd_tensor *gd_sqrt(gd_tensor *x);
/* 1 / sqrt(x), rounded twice */
GD_API gd_tensor *gd_rsqrt(gd_tensor *x);
/* These four of integers and bools: x itself. */
GD_API gd_tensor *gd_floor(gd_tensor *x);
GD_API gd_tensor *gd_ceil(gd_tensor *x);
/* to nearest, halves to even */
GD_API gd_tensor *gd_round(gd_tensor *x);
/* toward zero */
GD_API gd_tensor *gd_trunc(gd_tensor *x);

/* With a C number, whose dtype gradus/tensor.h tells; `gd_rsub_scalar` is c - x, `gd_rdiv_scalar`
 * is c / x. */
GD_API gd_tensor *gd_add_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_sub_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_rsub_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_mul_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_div_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_rdiv_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_pow_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_floor_div_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_mod_scalar(gd_tensor *x, double c);
/* floor(c / x), c mod x, c ^ x */
GD_API gd_tensor *gd_rfloor_div_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_rmod_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_rpow_scalar(gd_tensor *x, double c);
/* max(x, c) and min(x, c), as gd_maximum and gd_minimum */
GD_API gd_tensor *gd_maximum_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_minimum_scalar(gd_tensor *x, double c);
/* min(max(x, low), high), which is high where the bounds cross; the gradient is 1 within the bounds
 * and at them, 0 outside. Of integers a bound beyond what their dtype can hold does not bind. A NaN
 * bound is GD_ERR_INVALID. */
GD_API gd_tensor *gd_clip(gd_tensor *x, double low, double high);

/* The same with tensors as bounds, which broadcast; where they cross, `low` is preferred; NaN where
 * a bound is. */
GD_API gd_tensor *gd_clamp(gd_tensor *x, gd_tensor *low, gd_tensor *high);
/* sqrt(x^2 + y^2) without overflow, within 3 ulp; the gradient at 0 is 0 */
GD_API gd_tensor *gd_hypot(gd_tensor *x, gd_tensor *y);
/* x + weight * (y - x), all three broadcast; integers as f32 */
GD_API gd_tensor *gd_lerp(gd_tensor *x, gd_tensor *y, gd_tensor *weight);
/* log(exp(x) + exp(y)) without overflow */
GD_API gd_tensor *gd_logaddexp(gd_tensor *x, gd_tensor *y);

/* ---- exponentials, logarithms, trigonometry: within 2 ulp in f32 ---- */

GD_API gd_tensor *gd_exp(gd_tensor *x);
GD_API gd_tensor *gd_exp2(gd_tensor *x);
/* exp(x) - 1, exact near 0 */
GD_API gd_tensor *gd_expm1(gd_tensor *x);
GD_API gd_tensor *gd_log(gd_tensor *x);
GD_API gd_tensor *gd_log2(gd_tensor *x);
GD_API gd_tensor *gd_log10(gd_tensor *x);
/* log(1 + x), exact near 0 */
GD_API gd_tensor *gd_log1p(gd_tensor *x);
GD_API gd_tensor *gd_sin(gd_tensor *x);
GD_API gd_tensor *gd_cos(gd_tensor *x);
GD_API gd_tensor *gd_tan(gd_tensor *x);
GD_API gd_tensor *gd_asin(gd_tensor *x);
GD_API gd_tensor *gd_acos(gd_tensor *x);
GD_API gd_tensor *gd_atan(gd_tensor *x);
GD_API gd_tensor *gd_sinh(gd_tensor *x);
GD_API gd_tensor *gd_cosh(gd_tensor *x);
GD_API gd_tensor *gd_tanh(gd_tensor *x);

/* The inverses of sinh, cosh and tanh, made of logarithms: within 4 ulp. */
GD_API gd_tensor *gd_asinh(gd_tensor *x);
GD_API gd_tensor *gd_acosh(gd_tensor *x);
GD_API gd_tensor *gd_atanh(gd_tensor *x);

/* ---- activations and special functions ---- */

/* max(x, 0); NaN stays; the gradient at 0 is 0 */
GD_API gd_tensor *gd_relu(gd_tensor *x);
/* 1 / (1 + exp(-x)), no overflow */
GD_API gd_tensor *gd_sigmoid(gd_tensor *x);
/* log(1 + exp(x)), no overflow */
GD_API gd_tensor *gd_softplus(gd_tensor *x);
/* 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x; within 2 ulp in f32 */
GD_API gd_tensor *gd_erf(gd_tensor *x);
/* its inverse on (-1, 1); infinite at the ends, NaN beyond; within 2 ulp in f32, 2.5 in f64 */
GD_API gd_tensor *gd_erfinv(gd_tensor *x);
/* log |gamma(x)|: within 1 ulp in f32, as the C library has it in f64. One number at a time. */
GD_API gd_tensor *gd_lgamma(gd_tensor *x);
/* Its derivative: within 1 ulp in f32, 8 in f64 (near its zeros: absolute 1e-15); NaN at negative
 * integers */
GD_API gd_tensor *gd_digamma(gd_tensor *x);
/* Derivative number order + 1 of lgamma: order 0 is digamma. The order, a tensor that broadcasts,
 * is cut to a whole number from 0 to 100, else NaN; has no gradient. NaN too below -10^6 for orders
 * from 1 on. */
GD_API gd_tensor *gd_polygamma(gd_tensor *order, gd_tensor *x);
/* x/2 * (1 + erf(x / sqrt 2)). Hendrycks, Gimpel 2016 */
GD_API gd_tensor *gd_gelu(gd_tensor *x);
/* its tanh approximation, as GPT-2 uses */
GD_API gd_tensor *gd_gelu_tanh(gd_tensor *x);
/* x * sigmoid(x) */
GD_API gd_tensor *gd_silu(gd_tensor *x);
/* exp(x - max) / sum of them along `axis`, stable. The gradient is a vector-Jacobian product, O(n):
 * r * (g - sum(g * r)). */
GD_API gd_tensor *gd_softmax(gd_tensor *x, int axis);
/* log of it, computed as (x - max) - log(sum(exp(x - max))). */
GD_API gd_tensor *gd_log_softmax(gd_tensor *x, int axis);

/* log(sigmoid(x)), no overflow */
GD_API gd_tensor *gd_log_sigmoid(gd_tensor *x);
/* x where x > 0, else slope * x */
GD_API gd_tensor *gd_leaky_relu(gd_tensor *x, double slope);
/* The same with learned slopes, broadcast against x. He, Zhang, Ren, Sun 2015 */
GD_API gd_tensor *gd_prelu(gd_tensor *x, gd_tensor *slope);
/* min(max(x, 0), 6); the gradient at 0 is 0 */
GD_API gd_tensor *gd_relu6(gd_tensor *x);
/* x where x > 0, else alpha * (exp(x) - 1). Clevert, Unterthiner, Hochreiter 2015 */
GD_API gd_tensor *gd_elu(gd_tensor *x, double alpha);
/* 1.0507 * elu(x, 1.6733), which keeps means and variances. Klambauer et al. 2017 */
GD_API gd_tensor *gd_selu(gd_tensor *x);
/* x * tanh(softplus(x)). Misra 2019 */
GD_API gd_tensor *gd_mish(gd_tensor *x);
/* min(max(x + 3, 0), 6) / 6 */
GD_API gd_tensor *gd_hard_sigmoid(gd_tensor *x);
/* x * hard_sigmoid(x). Howard et al. 2019 */
GD_API gd_tensor *gd_hard_swish(gd_tensor *x);
/* x / (1 + |x|) */
GD_API gd_tensor *gd_softsign(gd_tensor *x);
/* a * sigmoid(b), where a and b are the halves of x along an axis of even length. Dauphin et al.
 * 2016 */
GD_API gd_tensor *gd_glu(gd_tensor *x, int axis);

/* Each element with probability `dropout` set to 0, the others times 1 / (1 - dropout). The mask
 * comes from the context's random stream, another one at each call, compiled or not; the gradient
 * has the same. Outside 0 … 1: GD_ERR_INVALID. Integers as f32. Srivastava et al. 2014 */
GD_API gd_tensor *gd_dropout(gd_tensor *x, double dropout);
/* 1 with the probability each element states (0 … 1), else 0; of a float dtype. No gradient. */
GD_API gd_tensor *gd_bernoulli(gd_tensor *probability);
/* An index (i64) along an axis, drawn with probability softmax(logits); log(p) for probabilities p.
 * -inf is never drawn. The axis disappears. By the Gumbel-max method. */
GD_API gd_tensor *gd_categorical(gd_tensor *logits, int axis);

/* Gradient helpers, ops in their own right because derivatives are graphs too. */
/* g where y > 0, else 0 */
GD_API gd_tensor *gd_relu_grad(gd_tensor *g, gd_tensor *y);
/* g times the derivative of gelu, gelu_tanh or silu at x; the shapes broadcast */
GD_API gd_tensor *gd_gelu_grad(gd_tensor *g, gd_tensor *x);
GD_API gd_tensor *gd_gelu_tanh_grad(gd_tensor *g, gd_tensor *x);
GD_API gd_tensor *gd_silu_grad(gd_tensor *g, gd_tensor *x);
/* x^y ln x; 0 at x = 0, y >= 0 */
GD_API gd_tensor *gd_pow_log(gd_tensor *x, gd_tensor *y);
/* (x - y) * z: what normalisation about a mean y does; the shapes broadcast */
GD_API gd_tensor *gd_scale_centred(gd_tensor *x, gd_tensor *y, gd_tensor *z);
/* (x - y)^2 of y that is the mean of x along the axes over which the result is summed next: a variance. By y
 * there is no derivative, whose sum would be 0 for every x. */
GD_API gd_tensor *gd_square_about_mean(gd_tensor *x, gd_tensor *y);

/* ---- comparisons and logic: bool results ---- */

GD_API gd_tensor *gd_eq(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_ne(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_lt(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_le(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_gt(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_ge(gd_tensor *x, gd_tensor *y);
/* With a C number. Integers and bools are compared with it by value, whether their dtype can hold it
 * or not: of u8, gd_lt_scalar(x, 256) holds everywhere, gd_eq_scalar(x, 0.5) nowhere. */
GD_API gd_tensor *gd_eq_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_ne_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_lt_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_le_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_gt_scalar(gd_tensor *x, double c);
GD_API gd_tensor *gd_ge_scalar(gd_tensor *x, double c);
/* |x - y| <= absolute + relative * |y|, and where x equals y, infinities too; with `equal_nan` also
 * where both are NaN (numpy.isclose, whose defaults are 1e-5, 1e-8, false). Integers as f64. */
GD_API gd_tensor *gd_isclose(gd_tensor *x, gd_tensor *y, double relative, double absolute,
                             bool equal_nan);
/* Whether that holds of all elements; false, too, for NULL and on an error. These two read values:
 * GD_ERR_STATE while tracing. */
GD_API bool gd_allclose(gd_tensor *x, gd_tensor *y, double relative, double absolute,
                        bool equal_nan);
/* Whether shapes are the same and all elements equal; NaN equals nothing. */
GD_API bool gd_equal(gd_tensor *x, gd_tensor *y);
/* Whether each element of x is one of `values`, of any shape: bool, x's shape. */
GD_API gd_tensor *gd_isin(gd_tensor *x, gd_tensor *values);
GD_API gd_tensor *gd_logical_and(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_logical_or(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_logical_xor(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_logical_not(gd_tensor *x);
GD_API gd_tensor *gd_isnan(gd_tensor *x);
GD_API gd_tensor *gd_isinf(gd_tensor *x);
/* Neither NaN nor infinite. */
GD_API gd_tensor *gd_isfinite(gd_tensor *x);
/* Whether the sign is minus, of -0 and of NaN too. */
GD_API gd_tensor *gd_signbit(gd_tensor *x);
/* Of bools the logical_not, of integers all bits turned; floats are refused. */
GD_API gd_tensor *gd_bitwise_not(gd_tensor *x);
/* x * 2^n and floor(x / 2^n) of integers, dtype as promoted (bools as i32), wrapping: of 64 places
 * and more nothing stays but the sign, 0 or -1, of right shifts. n < 0: GD_ERR_INVALID. */
GD_API gd_tensor *gd_left_shift(gd_tensor *x, gd_tensor *n);
GD_API gd_tensor *gd_right_shift(gd_tensor *x, gd_tensor *n);
/* Integers and bools only; dtype as promoted. */
GD_API gd_tensor *gd_bitwise_and(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_bitwise_or(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_bitwise_xor(gd_tensor *x, gd_tensor *y);
/* y where `condition` (bool) holds, else z. */
GD_API gd_tensor *gd_where(gd_tensor *condition, gd_tensor *y, gd_tensor *z);

/* ---- conversion, joining ---- */

/* Float to integer truncates toward zero and saturates, NaN gives 0; integers to u8 wrap; anything
 * to bool is x != 0; to f16, bf16, f32: nearest, ties to even. Same dtype: x itself. */
GD_API gd_tensor *gd_cast(gd_tensor *x, gd_dtype dtype);
/* Zeros, ones, a number its dtype can hold, or memory as it is found (gd_empty), of x's shape and
 * dtype. */
GD_API gd_tensor *gd_zeros_like(gd_tensor *x);
GD_API gd_tensor *gd_ones_like(gd_tensor *x);
GD_API gd_tensor *gd_full_like(gd_tensor *x, double value);
GD_API gd_tensor *gd_empty_like(gd_tensor *x);
/* x with numbers in place of NaN, of infinity and of -infinity; of integers and bools x itself. */
GD_API gd_tensor *gd_nan_to_num(gd_tensor *x, double nan, double above, double below);
/* Constant padding by a value x's dtype can hold; before and after have x's rank, none negative. */
GD_API gd_tensor *gd_pad(gd_tensor *x, gd_shape before, gd_shape after, double value);
/* Join tensors, any number from 1 on, along an axis; the other dimensions equal; dtypes promoted. */
GD_API gd_tensor *gd_concat(int count, gd_tensor *const *tensors, int axis);
/* Join along a new axis. */
GD_API gd_tensor *gd_stack(int count, gd_tensor *const *tensors, int axis);

/* ---- rearranging. Views where strides can express the result, else copies ---- */

/* Cut x along an axis into pieces of the given sizes, which add up to its length: pieces[0 …
 * count-1], views. On an error, and for NULL, they are NULL. */
GD_API gd_status gd_split(gd_tensor *x, int axis, int count, const int64_t *sizes,
                          gd_tensor **pieces);
/* Likewise into `count` pieces whose sizes differ by at most 1, the larger first
 * (torch.tensor_split). */
GD_API gd_status gd_chunk(gd_tensor *x, int axis, int count, gd_tensor **pieces);
/* x repeated as a whole along each axis (numpy.tile); the shorter of the two shapes is extended by
 * leading ones. */
GD_API gd_tensor *gd_tile(gd_tensor *x, gd_shape repeats);
/* Each element `count` times along an axis (numpy.repeat, torch.repeat_interleave). */
GD_API gd_tensor *gd_repeat(gd_tensor *x, int axis, int64_t count);
/* Elements moved on by `shift` places along an axis; those that leave come back at the other end.
 */
GD_API gd_tensor *gd_roll(gd_tensor *x, int axis, int64_t shift);
/* The last two axes as matrices [m, n] with 0 above (tril) or below (triu) diagonal number
 * `diagonal`: 0 the main one, positive above it. */
GD_API gd_tensor *gd_tril(gd_tensor *x, int64_t diagonal);
GD_API gd_tensor *gd_triu(gd_tensor *x, int64_t diagonal);
/* Diagonal number `offset` of the matrices along two axes, which disappear; it becomes the last
 * axis (numpy.diagonal). */
GD_API gd_tensor *gd_diagonal(gd_tensor *x, int axis_a, int axis_b, int64_t offset);
/* [.., n] -> [.., n+|offset|, n+|offset|], the last axis on diagonal number `offset`, 0 elsewhere.
 */
GD_API gd_tensor *gd_diag_embed(gd_tensor *x, int64_t offset);
/* Of a vector its diagonal matrix, of a matrix its diagonal (numpy.diag). */
GD_API gd_tensor *gd_diag(gd_tensor *x, int64_t offset);
/* Vectors x_i of n_i elements -> grids[i] [n_0, n_1, …], whose element [.., k_i, ..] is x_i[k_i]
 * (indexing "ij"): views. 1 … 8 vectors. On an error, and for a NULL, all grids are NULL. */
GD_API gd_status gd_meshgrid(int count, gd_tensor *const *vectors, gd_tensor **grids);
/* Padding with what lies inside: mirrored at the first and the last element, which are not repeated
 * (numpy.pad's "reflect"), or these elements themselves ("edge"). An empty axis cannot be padded:
 * GD_ERR_SHAPE. */
GD_API gd_tensor *gd_pad_reflect(gd_tensor *x, gd_shape before, gd_shape after);
GD_API gd_tensor *gd_pad_replicate(gd_tensor *x, gd_shape before, gd_shape after);

/* ---- reductions. Negative axes count from the end; keep: leave reduced axes with size 1. The
 * order of additions is fixed by shape and strides ---- */

/* unsigned integers give u64, all others and bools i64; of nothing: 0 */
GD_API gd_tensor *gd_sum(gd_tensor *x, gd_axes axes, bool keep);
/* likewise; of nothing: 1 */
GD_API gd_tensor *gd_prod(gd_tensor *x, gd_axes axes, bool keep);
/* integers as f32 */
GD_API gd_tensor *gd_mean(gd_tensor *x, gd_axes axes, bool keep);
/* NaN wins; ties share the gradient; of nothing: GD_ERR_SHAPE */
GD_API gd_tensor *gd_max(gd_tensor *x, gd_axes axes, bool keep);
GD_API gd_tensor *gd_min(gd_tensor *x, gd_axes axes, bool keep);
/* Mean of squared deviations, divided by n - correction (0: population, 1: sample). */
GD_API gd_tensor *gd_var(gd_tensor *x, gd_axes axes, double correction, bool keep);
/* Its root; the gradient of equal numbers is 0. */
GD_API gd_tensor *gd_std(gd_tensor *x, gd_axes axes, double correction, bool keep);
/* log(sum(exp(x))), stable; all -inf gives -inf; of nothing: GD_ERR_SHAPE. */
GD_API gd_tensor *gd_logsumexp(gd_tensor *x, gd_axes axes, bool keep);
/* (sum |x|^p)^(1/p) for p > 0; infinite p: the largest (or, for -inf, the smallest) |x|; 0: how
 * many are not 0. The gradient where a norm is 0 is 0, and by elements that are 0. Other p:
 * GD_ERR_INVALID. */
GD_API gd_tensor *gd_norm(gd_tensor *x, gd_axes axes, double p, bool keep);
/* bool */
GD_API gd_tensor *gd_all(gd_tensor *x, gd_axes axes, bool keep);
/* bool */
GD_API gd_tensor *gd_any(gd_tensor *x, gd_axes axes, bool keep);
/* Index (i64) of the first extreme along an axis; NaN counts as one. */
GD_API gd_tensor *gd_argmax(gd_tensor *x, int axis, bool keep);
GD_API gd_tensor *gd_argmin(gd_tensor *x, int axis, bool keep);
/* Running sum and product along an axis; integers as in gd_sum. Terms are taken one by one, in order and
 * in the result's dtype, as in NumPy: the rounding error of f32 grows with their number (about 1e-4
 * after 4,096 normal ones); cast to f64 where that matters. */
GD_API gd_tensor *gd_cumsum(gd_tensor *x, int axis);
GD_API gd_tensor *gd_cumprod(gd_tensor *x, int axis);

/* Running extremes along an axis, and, where `indices` is not NULL, where each was found (i64; of
 * equal ones the last, which has the gradient). NaN stays from where it stands. */
GD_API gd_tensor *gd_cummax(gd_tensor *x, int axis, gd_tensor **indices);
GD_API gd_tensor *gd_cummin(gd_tensor *x, int axis, gd_tensor **indices);
/* Each element minus the one before it along an axis, which gets shorter by one. */
GD_API gd_tensor *gd_diff(gd_tensor *x, int axis);

/* ---- order statistics and counts ---- */

/* The number below which the share q (0 … 1) of the elements along an axis lies: between the two
 * nearest, in proportion (numpy.quantile's "linear"). NaN where there is one. Integers as f32. An
 * empty axis is GD_ERR_SHAPE. */
GD_API gd_tensor *gd_quantile(gd_tensor *x, int axis, double q, bool keep);
/* The middle element along an axis, of an even number the mean of the middle two (numpy.median). */
GD_API gd_tensor *gd_median(gd_tensor *x, int axis, bool keep);
/* How many elements are not 0: i64. */
GD_API gd_tensor *gd_count_nonzero(gd_tensor *x, gd_axes axes, bool keep);
/* How often each of 0 … bins-1 is among the integers x: i64 [bins]; with `weights`, of x's shape, the
 * sum of theirs. A number that is none of these is GD_ERR_INVALID. */
GD_API gd_tensor *gd_bincount(gd_tensor *x, gd_tensor *weights, int64_t bins);
/* How many elements lie in each of `bins` parts of equal width from low to high: i64 [bins]. A part
 * begins with its lower bound; `high` belongs to the last; what lies outside, and NaN, is not
 * counted (numpy.histogram). */
GD_API gd_tensor *gd_histogram(gd_tensor *x, int64_t bins, double low, double high);

/* ---- products ---- */

/* NumPy's matmul: [.., m, k] @ [.., k, n] -> [.., m, n], leading axes broadcast; a 1-D operand is a
 * row (left) or a column (right) and its axis disappears. Every element is a fixed chain of fused
 * multiply-adds (src/backend/cpu/gemm.h). */
GD_API gd_tensor *gd_matmul(gd_tensor *x, gd_tensor *y);
/* [m] and [n] -> [m, n] */
GD_API gd_tensor *gd_outer(gd_tensor *x, gd_tensor *y);
/* [n] and [n] -> [] */
GD_API gd_tensor *gd_dot(gd_tensor *x, gd_tensor *y);
/* Sums of products of 1 to 32 operands, named by letters, as NumPy has it: "bij,bjk->bik". Spaces
 * are ignored; "..." stands for further axes, which broadcast; a letter twice in one operand is its
 * diagonal; without "->" the letters that occur once, in alphabetical order, make the result. Pairs
 * are contracted, cheapest first, by matrix products. The result has the operands' promoted dtype
 * (bools count as i32): integers wrap. GD_ERR_INVALID: what cannot be read;
 * GD_ERR_SHAPE: what does not fit. */
GD_API gd_tensor *gd_einsum(const char *equation, int count, gd_tensor *const *operands);
/* x @ weight + bias: [.., in] @ [in, out] + [out]; bias may be NULL. The functional form of
 * gd_nn_linear. */
GD_API gd_tensor *gd_linear(gd_tensor *x, gd_tensor *weight, gd_tensor *bias);
/* x [.., in] times weights of 8 bits, which stay so in memory: values i8 [out, in], in blocks of 32
 * along `in`, and scales f16 or f32 [out, in / 32]; weight[j][i] is values[j][i] * scales[j][i / 32],
 * as in GGUF's Q8_0. Or of 4 bits, as in its Q4_0: values u8 [out, in / 2], byte i of the 16 of a block
 * being 8 more than weight i in its low four bits, and than weight i + 16 in its high ones. Both may have least values, as
 * in Q5_1 and Q4_1: scales are then [out, in / 16], d and e of each block beside each other, and weight i is d w[i] - e; of 4
 * bits w is 0 to 15, not 8 more. Or with scales of two levels, as k-quants have them: 256 weights share one scale d, or d and
 * e, and each group of 32 or 16 among them has a scale k from -128 to 127, and with e a least value l; weight i is
 * d k w[i] - e l. For each 256 weights a row of values then has their 256 or 128 bytes, k of each of the 8 or 16 groups, and l
 * of each. Scales are [out, in / 256], or [out, in / 128] with d and e beside each other. The sizes of values and scales tell
 * which form they have.
 *
 * x is rounded to 8 bits, too: each block of 32 to multiples of a 127th of its
 * largest magnitude; products of a block are summed exactly, blocks in f32, with the same bits on all
 * devices. A row of x with a NaN or an infinity gives NaN. The result is [.., out], of x's dtype, f32
 * for integers. Gradients are those of the product without rounding; values and scales get none.
 * GD_ERR_SHAPE also where `in` is not a multiple of 32, or of 256, or above 262144. */
GD_API gd_tensor *gd_quantized_linear(gd_tensor *x, gd_tensor *values, gd_tensor *scales);
/* The weights that values and scales of gd_quantized_linear stand for, in any of their forms and of any
 * rank, as i8 [.., in] with f16 or f32 [.., in / 32], to f32 [.., in]. GD_ERR_DTYPE, GD_ERR_SHAPE. */
GD_API gd_tensor *gd_dequantize(gd_tensor *values, gd_tensor *scales);
/* x [.., in] in 8 bits, for gd_quantized_linear: i8 [.., in], and into *scales f32 [.., in / 32]. A scale is the largest
 * magnitude of its 32 numbers by 127, or with per_channel that of the whole row, which all its blocks then have; numbers are x
 * by it, to nearest, halves to even. Numbers whose scale is infinite or NaN are 0. Neither has a gradient. GD_ERR_SHAPE: `in` is no
 * multiple of 32; GD_ERR_DTYPE: no floats. */
GD_API gd_tensor *gd_quantize(gd_tensor *x, bool per_channel, gd_tensor **scales);

/* ---- indexing ---- */

/* out[i][j] = x[index[i][j]][j] for axis 0, and so on (torch.gather). index: i64 or i32, x's rank,
 * no larger than x off the axis. */
GD_API gd_tensor *gd_gather(gd_tensor *x, gd_tensor *index, int axis);
/* A copy of base with source put at index: out[index[i][j]][j] = source[i][j] for axis 0, and so on
 * (torch.scatter). Of several sources for one place the last along the axis stays, and has the
 * gradient. */
GD_API gd_tensor *gd_scatter(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis);
/* A copy of base with source added at index, in index order, duplicates accumulating
 * (torch.scatter_add). */
GD_API gd_tensor *gd_scatter_add(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis);
/* The slices of x at `index` along an axis: x's shape with the axis replaced by the index's shape
 * (numpy.take). index: i64 or i32 of any shape, values in 0 … size-1, else GD_ERR_INVALID. Its
 * gradient is added up in index order: the same bits for any number of threads. */
GD_API gd_tensor *gd_take(gd_tensor *x, gd_tensor *index, int axis);
/* The same for an index that is a vector (torch.index_select). */
GD_API gd_tensor *gd_index_select(gd_tensor *x, gd_tensor *index, int axis);
/* Rows of a table: index [..], weight [rows, width] -> [.., width]. */
GD_API gd_tensor *gd_embedding(gd_tensor *index, gd_tensor *weight);
/* A copy of base with the slices of source added along an axis at index [n], in index order;
 * source: base's shape with n along the axis (torch.index_add). */
GD_API gd_tensor *gd_index_add(gd_tensor *base, gd_tensor *index, gd_tensor *source, int axis);
/* x with `value` where the mask (bool, broadcast) holds; of x's dtype, which must be able to hold
 * the value. */
GD_API gd_tensor *gd_masked_fill(gd_tensor *x, gd_tensor *mask, double value);
/* [...] integers -> [..., classes] of dtype, 1 at the index; an index out of range gives a row of
 * zeros. */
GD_API gd_tensor *gd_one_hot(gd_tensor *index, int64_t classes, gd_dtype dtype);

/* ---- attention ---- */

typedef struct gd_attention_options {
    size_t size GD_DEFAULT(sizeof(gd_attention_options));
    gd_tensor *mask; // broadcast to [.., heads, tq, tk]: bool, true where a query may look; or
                     // numbers added to the scores
    bool causal;     /* query i sees keys 0 … i + tk - tq, so that the last query sees all */
    double scale GD_DEFAULT(NAN); /* of the scores; NaN: 1/sqrt(d) */
    double dropout; /* probability with which a weight is 0, the others times 1 / (1 - dropout) */
    bool plain;     /* store the scores, O(tq tk) memory: for comparison */
    gd_tensor *k_scale; // f32 [.., kv_heads, tk, 1]: k is i8, and its rows are multiplied by these
    gd_tensor *v_scale; // the same of v, with k_scale
} gd_attention_options;
#define GD_ATTENTION_DEFAULTS .size = sizeof(gd_attention_options), .scale = NAN, .v_scale = NULL

/* gd_attention(q, k, v, .causal = true): softmax(scale q k^T + mask) v -> [.., heads, tq, dv]
 * (Vaswani et al. 2017), of
 *   q   [.., heads, tq, d]
 *   k   [.., kv_heads, tk, d]; heads is a multiple of kv_heads (grouped-query)
 *   v   [.., kv_heads, tk, dv]
 * The scores are never stored: forward and backward take O(tq + tk) memory beside operands and
 * results (FlashAttention: Dao et al. 2022; Dao 2023). A query that may look nowhere gets zeros.
 * f32, f64, f16 and bf16 (sums and softmax in f32). Dropout draws tq * tk words a head from the
 * context's stream. A mask that requires a gradient is computed with as `plain`.
 *
 * Beside q in f32, k and v may be halves, or i8 with scales, as a cache keeps them: what they stand for
 * is computed with in f32, and has these bits however it is done. Without a gradient they are read as
 * they are, a block at a time. GD_ERR_INVALID: one scale; GD_ERR_DTYPE, GD_ERR_SHAPE: they do not fit. */
#define gd_attention(...) \
    GD_WITH_3(gd_attention_with, gd_attention_options, GD_ATTENTION_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_attention_with(gd_tensor *q, gd_tensor *k, gd_tensor *v,
                                    const gd_attention_options *options);

/* ---- recurrent networks ---- */

typedef enum gd_cell {
    GD_CELL_RNN, /* tanh */
    GD_CELL_RNN_RELU,
    GD_CELL_LSTM, /* 4 gates: i, f, g, o */
    GD_CELL_GRU,  /* 3 gates: r, z, n */
} gd_cell;

typedef struct gd_recurrent_options {
    size_t size GD_DEFAULT(sizeof(gd_recurrent_options));
    gd_tensor *first_hidden, *first_cell; // [batch, width], the cell of LSTM; NULL: zeros
    gd_tensor *lengths; // [batch] integers: behind its end a sequence keeps its state; NULL: none
    gd_tensor **last_cell; /* LSTM, if not NULL: the cell at the end, [batch, width] */
    bool reverse;          /* from the last step to the first */
    bool plain;            /* step by step, from simpler ops: has second derivatives */
} gd_recurrent_options;
#define GD_RECURRENT_DEFAULTS .size = sizeof(gd_recurrent_options), .plain = false

/* gd_recurrent(z, weight, bias, GD_CELL_GRU) -> h of every step, [batch, time, width], of
 *   z        [batch, time, gates * width]: the input's share of every step, x @ W + b
 *   weight   [width, gates * width]
 *   bias     [gates * width]
 * Elman 1990; LSTM: Hochreiter, Schmidhuber 1997; GRU: Cho et al. 2014, in PyTorch's form, where r
 * scales h @ weight + bias. Operands of several dtypes are promoted; computed in f32
 * or f64. */
#define gd_recurrent(...) \
    GD_WITH_4(gd_recurrent_with, gd_recurrent_options, GD_RECURRENT_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_recurrent_with(gd_tensor *z, gd_tensor *weight, gd_tensor *bias, gd_cell cell,
                                    const gd_recurrent_options *options);

/* ---- positions ---- */

typedef struct gd_rope_options {
    size_t size GD_DEFAULT(sizeof(gd_rope_options));
    int64_t start;                        /* position of the first row */
    double rotary_base GD_DEFAULT(10000); /* more than 0 */
    bool halves;
} gd_rope_options;
#define GD_ROPE_DEFAULTS .size = sizeof(gd_rope_options), .rotary_base = 10000, .halves = false
/* gd_rope(q), gd_rope(q, .start = 17, .halves = true): rotary position embedding (Su et al.,
 * "RoFormer", 2021) of x [.., time, d], d even: the pair of features p at position t is turned by
 * the angle t * rotary_base^(-2p/d). Pairs are neighbours (2p, 2p+1) as in Llama's files; with
 * `halves`, (p, p + d/2) as in GPT-NeoX. */
#define gd_rope(...) GD_WITH_1(gd_rope_with, gd_rope_options, GD_ROPE_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_rope_with(gd_tensor *x, const gd_rope_options *options);
/* sin(t / 10000^(2p/d)) at feature 2p, cos of the same at 2p+1 (of an odd d the last is a sine), for t in start … start+time-1:
 * [time, d] of a float dtype (Vaswani et al. 2017). */
GD_API gd_tensor *gd_sinusoidal_positions(gd_context *context, int64_t start, int64_t time,
                                          int64_t d, gd_dtype dtype);

/* x[indices[0], indices[1], …] as NumPy has it. indices[i] belongs to axis i and is NULL (all of
 * it), i64 or i32 (negative ones count from the end), or a bool mask, which stands for as many axes
 * as it has; the indices broadcast together. Their axes are replaced by the axes of their common
 * shape, where they stood when they are side by side, else in front. Out of range:
 * GD_ERR_INVALID. With a mask the size depends on values: GD_ERR_STATE in a compiled function. */
GD_API gd_tensor *gd_index(gd_tensor *x, int count, gd_tensor *const *indices);
/* A copy of x with `value` (broadcast, converted) in place of what gd_index gives, or added to it,
 * duplicates accumulating. */
GD_API gd_tensor *gd_index_put(gd_tensor *x, int count, gd_tensor *const *indices, gd_tensor *value,
                               bool accumulate);
/* Sizes that depend on values: these three are GD_ERR_STATE in a compiled function. */
/* Where x is not 0: i64 [count, rank], row-major order (torch.nonzero). */
GD_API gd_tensor *gd_nonzero(gd_tensor *x);
/* The elements of x (broadcast with the mask) where the bool mask holds: [count]. */
GD_API gd_tensor *gd_masked_select(gd_tensor *x, gd_tensor *mask);
/* The different values of x in rising order: [count]; NaNs count as one value. `inverse` (x's
 * shape: which of them each element is) and `counts` ([count]) may be NULL. No gradient. */
GD_API gd_tensor *gd_unique(gd_tensor *x, gd_tensor **inverse, gd_tensor **counts);

/* ---- order. NaN counts as larger than every number, -0 as 0; equal elements keep their order ----
 */

/* x in rising or falling order along an axis. */
GD_API gd_tensor *gd_sort(gd_tensor *x, int axis, bool descending);
/* The indices (i64) along an axis that put x in that order; the axis has fewer than 2^32 elements.
 */
GD_API gd_tensor *gd_argsort(gd_tensor *x, int axis, bool descending);
/* The k largest (or smallest) along an axis, in falling (rising) order, and, where `indices` is not
 * NULL, where they stood. k not in 0 … size: GD_ERR_INVALID. */
GD_API gd_tensor *gd_topk(gd_tensor *x, int axis, int64_t k, bool largest, gd_tensor **indices);
/* How many elements of `sorted` [n], in rising order, stand before each of `values`: those smaller,
 * with `right` those not larger. i64. */
GD_API gd_tensor *gd_searchsorted(gd_tensor *sorted, gd_tensor *values, bool right);

/* ---- effects ---- */

/* ---- in place: the result takes the storage of x ----
 *
 * x must have the result's shape and dtype. Use what is returned, and x no more: where history is
 * recorded it is another tensor, and x with its views are refused as operands from then on
 * (GD_ERR_STATE). A derivative that needs a value overwritten so is GD_ERR_STATE as well, never a
 * wrong number. GD_ERR_STATE too for a leaf that requires a gradient, or a view of one, outside of
 * gd_no_grad_begin and gd_no_grad_end; GD_ERR_INVALID for a tensor that was broadcast. In a
 * compiled function no argument and no view can be changed in place, and the compiler decides where
 * results lie. */
GD_API gd_tensor *gd_add_(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_sub_(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_mul_(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_div_(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_maximum_(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_minimum_(gd_tensor *x, gd_tensor *y);
GD_API gd_tensor *gd_neg_(gd_tensor *x);
GD_API gd_tensor *gd_abs_(gd_tensor *x);
GD_API gd_tensor *gd_square_(gd_tensor *x);
GD_API gd_tensor *gd_sqrt_(gd_tensor *x);
GD_API gd_tensor *gd_exp_(gd_tensor *x);
GD_API gd_tensor *gd_log_(gd_tensor *x);
GD_API gd_tensor *gd_relu_(gd_tensor *x);
GD_API gd_tensor *gd_sigmoid_(gd_tensor *x);
GD_API gd_tensor *gd_tanh_(gd_tensor *x);
/* The number as one of x's dtype; what that cannot hold is GD_ERR_INVALID. */
GD_API gd_tensor *gd_add_scalar_(gd_tensor *x, double c);
GD_API gd_tensor *gd_mul_scalar_(gd_tensor *x, double c);
GD_API gd_tensor *gd_masked_fill_(gd_tensor *x, gd_tensor *mask, double value);

/* Put `value` (broadcast and converted to it) into the storage of `target`, a tensor with storage
 * of its own: a parameter, an optimizer's state, a running metric (in a compiled function never a
 * value computed there: GD_ERR_STATE). Later reads of target see it. In
 * a compiled function this is recorded and happens at every call; views of target taken before,
 * inside that function, must not be read after (GD_ERR_STATE). Returns target. */
GD_API gd_tensor *gd_assign(gd_tensor *target, gd_tensor *value);

/* A tensor for state of one's own (an optimizer's, a metric's), every element `value`: made at
 * once, even inside a function that is being traced, and kept until it is given to gd_release.
 * gd_assign changes it. */
GD_API gd_tensor *gd_state(gd_context *context, gd_shape shape, double value, gd_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
