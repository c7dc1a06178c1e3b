/* gradus/scalar.h: the scalar engine. Backpropagation one number at a time.
 *
 * Every number is a gd_value: what it is (data), how it was made (an operation and its operands),
 * and how much a chosen result changes when it changes (grad). Operations build a graph as they
 * compute; gd_value_backward walks the graph from a result back to everything it was made of.
 *
 *     gd_value *a = gd_value_create_leaf(2.0);
 *     gd_value *b = gd_value_create_leaf(-3.0);
 *     gd_value *c = gd_value_mul(a, b);          // c = -6
 *     gd_value_backward(c);                      // grad of a is -3, grad of b is 2
 *     gd_value_release(c);
 *     gd_value_release(b);
 *     gd_value_release(a);
 *
 * What it is not: the tensor engine. It shares no code and no object with it; the C library and
 * libm are all it needs. It is the place to learn from; docs/guide/1-one-number.md walks through
 * it, src/scalar/scalar.c is the file.
 *
 * Ownership. A value lives while somebody holds a reference to it. Creating one gives the caller
 * one reference, which gd_value_release gives back. An operation retains its operands, so a result
 * keeps alive all it was made of, and releasing the last reference to a result frees whatever
 * nothing else holds.
 *
 * Errors. NULL in gives NULL out in silence, so an expression is checked once, at its end. A
 * pointer to a value that has been freed is recognised by its canary, as long as its memory has not
 * gone to a new value or, by gd_scalar_trim, to the system; the call then does nothing. The first
 * error is kept as a sentence, see gd_scalar_error.
 *
 * Threads. The engine keeps one store of values and one error and has no locks: use it from one
 * thread at a time.
 */
#ifndef GRADUS_SCALAR_H
#define GRADUS_SCALAR_H

#include <gradus/base.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Value ----------------------------------------------------------------------------------- */

typedef struct gd_value gd_value;

/* How a value was made. */
typedef enum gd_value_op {
    GD_VALUE_LEAF, /* by hand: an input or a parameter */
    GD_VALUE_ADD,
    GD_VALUE_SUB,
    GD_VALUE_MUL,
    GD_VALUE_DIV,
    GD_VALUE_NEG,
    GD_VALUE_POW,
    GD_VALUE_EXP,
    GD_VALUE_LOG,
    GD_VALUE_RELU,
    GD_VALUE_TANH,
    GD_VALUE_SIGMOID,
    GD_VALUE_OP_COUNT
} gd_value_op;

/* A number that was not computed from others. The caller holds the one reference. NULL: out of
 * memory. */
GD_API gd_value *gd_value_create_leaf(double data);

/* The result `data` of `op` applied to `left`, `right` (NULL for an op of one operand) and the
 * constant `extra` (the exponent of GD_VALUE_POW, else ignored). Retains both operands. The
 * operations below do this and compute `data` too; call it directly only for a result you have
 * computed by other means. NULL if an operand is NULL or freed, if the number of operands is not
 * that of `op`, or out of memory; then nothing is retained. */
GD_API gd_value *gd_value_create(gd_value_op op, double data, gd_value *left, gd_value *right,
                                 double extra);

/* The operations: c = formula, and the derivative of c in each operand. All return NULL if an
 * operand is NULL or freed, or out of memory. Domains are those of C's math functions: log gives
 * -inf at 0 and NaN below, pow gives NaN for a negative base and a fractional exponent. */

/* c = a + b;  dc/da = 1,  dc/db = 1 */
GD_API gd_value *gd_value_add(gd_value *a, gd_value *b);

/* c = a - b;  dc/da = 1,  dc/db = -1 */
GD_API gd_value *gd_value_sub(gd_value *a, gd_value *b);

/* c = a b;  dc/da = b,  dc/db = a */
GD_API gd_value *gd_value_mul(gd_value *a, gd_value *b);

/* c = a / b;  dc/da = 1 / b,  dc/db = -c / b */
GD_API gd_value *gd_value_div(gd_value *a, gd_value *b);

/* c = -a;  dc/da = -1 */
GD_API gd_value *gd_value_neg(gd_value *a);

/* c = a^n, n constant;  dc/da = n a^(n-1), and 0 everywhere for n = 0 */
GD_API gd_value *gd_value_pow(gd_value *a, double exponent);

/* c = e^a;  dc/da = c */
GD_API gd_value *gd_value_exp(gd_value *a);

/* c = ln a;  dc/da = 1 / a */
GD_API gd_value *gd_value_log(gd_value *a);

/* c = max(a, 0);  dc/da = 1 where a > 0, else 0 */
GD_API gd_value *gd_value_relu(gd_value *a);

/* c = tanh a;  dc/da = 1 - c^2 */
GD_API gd_value *gd_value_tanh(gd_value *a);

/* c = 1 / (1 + e^-a);  dc/da = c (1 - c) */
GD_API gd_value *gd_value_sigmoid(gd_value *a);

/* c = sum + term, taking over the caller's references to both, so that a loop needs no release:
 *     total = gd_value_accumulate(total, gd_value_mul(w, x));
 * If it returns NULL, both have been released. */
GD_API gd_value *gd_value_accumulate(gd_value *sum, gd_value *term);

/* Hold one more reference. Returns `value`; NULL if it is NULL or freed. */
GD_API gd_value *gd_value_retain(gd_value *value);

/* Give one reference back; at the last one the value is freed and gives back those it held.
 * Recurses never, however deep the graph. NULL is fine. A value already freed is left alone and
 * reported by gd_scalar_error. */
GD_API void gd_value_release(gd_value *value);

/* For every leaf x that `root` was made of: grad of x += d root / d x. The grad of a value in
 * between is set to d root / d value of this call, so a second call adds to the leaves once more,
 * exactly. Does not recurse. Returns 0, or -1 if `root` is NULL or freed or memory ran out (one
 * pointer is needed for each value alive, and kept for the next call); then nothing has changed. */
GD_API int gd_value_backward(gd_value *root);

/* The number, and its gradient (0 at first). NaN for NULL or freed. */
GD_API double gd_value_data(const gd_value *value);
GD_API double gd_value_grad(const gd_value *value);

/* Give a leaf a new number. Results already computed from it keep theirs: build the expression
 * again, and do it before the next backward (derivatives read the operands as they are then). 0, or
 * -1 for NULL, freed, or not a leaf. */
GD_API int gd_value_set_data(gd_value *leaf, double data);

/* grad = 0. NULL is fine. */
GD_API void gd_value_zero_grad(gd_value *value);

/* How it was made; GD_VALUE_LEAF for NULL or freed. */
GD_API gd_value_op gd_value_operation(const gd_value *value);

/* What it was made of: operand 0 or 1, borrowed; NULL if there is no such operand. */
GD_API gd_value *gd_value_operand(const gd_value *value, int index);

/* How many references are held to it; 0 for NULL or freed. */
GD_API size_t gd_value_references(const gd_value *value);

/* "mul" for GD_VALUE_MUL; "?" if there is no such operation. Never NULL. */
GD_API const char *gd_value_op_name(gd_value_op op);

/* ---- Memory and errors ----------------------------------------------------------------------- */

/* How many values are alive: 0 at the end of a program that gave back all it held. */
GD_API size_t gd_scalar_live_values(void);

/* Give memory back to the allocator. Freed values are kept for reuse until this is called while no
 * value is alive. 0, or -1 if values are still alive (then nothing happens). */
GD_API int gd_scalar_trim(void);

/* resize(user, NULL, n) allocates n bytes aligned for any standard type, resize(user, p, n)
 * reallocates, resize(user, p, 0) frees and returns NULL. */
typedef void *(*gd_scalar_allocator)(void *user, void *block, size_t bytes);

/* Take memory from `resize` instead of realloc and free; NULL restores those. Meant for tests that
 * make the n-th allocation fail. 0, or -1 (and nothing changes) while the engine holds memory:
 * destroy everything and call gd_scalar_trim first. */
GD_API int gd_scalar_set_allocator(gd_scalar_allocator resize, void *user);

/* The first error since gd_scalar_error_clear, as a sentence; "" if there was none. Never NULL. */
GD_API const char *gd_scalar_error(void);
GD_API void gd_scalar_error_clear(void);

/* ---- Vector: a growing array of values ------------------------------------------------------- */

/* Holds a reference to each of its values. NULL is taken for an empty vector that cannot grow. */
typedef struct gd_scalar_vector gd_scalar_vector;

/* An empty vector; NULL: out of memory. */
GD_API gd_scalar_vector *gd_scalar_vector_create(void);

/* Release its values and itself. NULL is fine. */
GD_API void gd_scalar_vector_destroy(gd_scalar_vector *vector);

/* Release its values; the room for them stays. */
GD_API void gd_scalar_vector_clear(gd_scalar_vector *vector);

/* Append and retain `value`. Amortised O(1). 0, or -1 if `value` is NULL or freed, or out of
 * memory; then the vector is as it was. */
GD_API int gd_scalar_vector_push(gd_scalar_vector *vector, gd_value *value);

/* Append a new leaf of value `data`, held by the vector alone. 0, or -1: out of memory. */
GD_API int gd_scalar_vector_push_leaf(gd_scalar_vector *vector, double data);

/* How many values it holds. */
GD_API size_t gd_scalar_vector_size(const gd_scalar_vector *vector);

/* The value at `index`, borrowed; NULL if there is none. */
GD_API gd_value *gd_scalar_vector_get(const gd_scalar_vector *vector, size_t index);

/* All of them [size], borrowed until the vector changes; NULL if nothing was ever pushed. */
GD_API gd_value *const *gd_scalar_vector_items(const gd_scalar_vector *vector);

/* ---- Set: which pointers have been seen ------------------------------------------------------ */

/* Compares addresses, never looks behind them, and holds no references. NULL is taken for an empty
 * set that cannot grow. A hash table with open addressing, at most half full: O(1) expected. */
typedef struct gd_scalar_set gd_scalar_set;

/* An empty set; NULL: out of memory. */
GD_API gd_scalar_set *gd_scalar_set_create(void);

/* NULL is fine. */
GD_API void gd_scalar_set_destroy(gd_scalar_set *set);

/* 1 if `item` is new, 0 if it was there, -1 if it is NULL or memory ran out; then the set is as it
 * was. */
GD_API int gd_scalar_set_insert(gd_scalar_set *set, const void *item);

GD_API bool gd_scalar_set_contains(const gd_scalar_set *set, const void *item);
GD_API size_t gd_scalar_set_size(const gd_scalar_set *set);

/* ---- Neuron, layer, multi-layer perceptron --------------------------------------------------- */

/* A source of random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
 * number generators", 2014). The same state gives the same numbers. */
typedef struct gd_scalar_random {
    uint64_t state;
} gd_scalar_random;

/* The next number, uniform in [low, high). */
GD_API double gd_scalar_uniform(gd_scalar_random *random, double low, double high);

typedef enum gd_scalar_activation {
    GD_SCALAR_RELU,  /* max(x, 0) */
    GD_SCALAR_LINEAR /* x */
} gd_scalar_activation;

/* Three sizes of the same thing: a neuron, a layer of neurons, layers in a row. For each,
 *
 *   create      makes the parameters, which are leaves. NULL on a size of 0, without a source of
 *               random numbers, or out of memory.
 *   forward     builds the graph from the inputs to the output, a new value (neuron) or a new
 *               vector (layer, MLP) that the caller owns. NULL if the number of inputs is not the
 *               one given at creation, or out of memory.
 *   parameters  appends them to `into`: w_0 ... w_n-1, b, neuron by neuron, layer by layer. 0, or
 *               -1 if memory ran out; `into` then holds the first few.
 *   destroy     releases the parameters. NULL is fine. */

/* y = activation(b + sum_i w_i x_i). Weights start uniform in +-sqrt(6 / inputs), the bias at 0 (He
 * et al., "Delving deep into rectifiers", 2015). */
typedef struct gd_neuron gd_neuron;
GD_API gd_neuron *gd_neuron_create(size_t inputs, gd_scalar_activation activation,
                                   gd_scalar_random *random);
GD_API gd_value *gd_neuron_forward(const gd_neuron *neuron, const gd_scalar_vector *inputs);
GD_API int gd_neuron_parameters(const gd_neuron *neuron, gd_scalar_vector *into);
GD_API void gd_neuron_destroy(gd_neuron *neuron);

/* `outputs` neurons that see the same inputs. */
typedef struct gd_scalar_layer gd_scalar_layer;
GD_API gd_scalar_layer *gd_scalar_layer_create(size_t inputs, size_t outputs,
                                               gd_scalar_activation activation,
                                               gd_scalar_random *random);
GD_API gd_scalar_vector *gd_scalar_layer_forward(const gd_scalar_layer *layer,
                                                 const gd_scalar_vector *inputs);
GD_API int gd_scalar_layer_parameters(const gd_scalar_layer *layer, gd_scalar_vector *into);
GD_API void gd_scalar_layer_destroy(gd_scalar_layer *layer);

/* A multi-layer perceptron: sizes[0] inputs, then layers of sizes[1] ... sizes[count - 1] neurons;
 * `count` is at least 2. ReLU after every neuron, except that `output` says what follows those of
 * the last layer. The seed fixes every weight. */
typedef struct gd_mlp gd_mlp;
GD_API gd_mlp *gd_mlp_create(const size_t *sizes, size_t count, gd_scalar_activation output,
                             uint64_t seed);
GD_API gd_scalar_vector *gd_mlp_forward(const gd_mlp *mlp, const gd_scalar_vector *inputs);
GD_API int gd_mlp_parameters(const gd_mlp *mlp, gd_scalar_vector *into);
GD_API void gd_mlp_destroy(gd_mlp *mlp);

/* Gradient descent, the two steps of every training loop, for parameters as *_parameters collects
 * them: p.grad = 0 before backward, p.data -= step_size p.grad after it. */
GD_API void gd_scalar_zero_grad(const gd_scalar_vector *parameters);
GD_API void gd_scalar_descend(const gd_scalar_vector *parameters, double step_size);

#ifdef __cplusplus
}
#endif
#endif
