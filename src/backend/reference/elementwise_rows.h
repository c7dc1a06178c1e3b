/* backend/reference/elementwise_rows.h: the loops of every row of ops/elementwise.def for one type
 * to compute in, and their table loops_<type>. Included by elementwise.c once per type, which
 * defines NAME, C (the type), LOAD, STORE (elements of any dtype), KEEP_<types>. */

/* The operands are read before the result is written: the result may be one of them. */
static C NAME(read)(const gd_kernel_call *call, int i, const gd_walk *w)
{
    return (C)LOAD(&call->in[i], gd_walk_offset(w, call->in[i].layout));
}

static void NAME(write_SAME)(const gd_kernel_call *call, const gd_walk *w, C value)
{
    STORE(&call->out, w->count, value);
}

static void NAME(write_BOOL)(const gd_kernel_call *call, const gd_walk *w, bool value)
{
    ((uint8_t *)call->out.data)[w->count] = value;
}

#if IS_FLOAT
static C NAME(absolute)(C x)
{
    return OWN(fabs)(x);
}

static C NAME(remainder)(C x, C y)
{
    return OWN(fmod)(x, y);
}

/* Python's and NumPy's (numpy/_core/src/npymath, npy_divmod): the remainder has the sign of y … */
static C NAME(floor_remainder)(C x, C y)
{
    C rest = OWN(fmod)(x, y);
    if (rest == 0)
        return OWN(copysign)(0, y);
    return (rest < 0) != (y < 0) ? rest + y : rest;
}

/* … and the quotient is what is left when it is taken off. */
static C NAME(floor_quotient)(C x, C y)
{
    if (y == 0)
        return x / y;
    C rest = OWN(fmod)(x, y);
    C quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0))
        quotient -= 1;
    if (quotient == 0)
        return OWN(copysign)(0, x / y);
    C whole = FLOOR(quotient);
    return quotient - whole > (C)0.5 ? whole + 1 : whole;
}

/* The activations round after every operation, as graphs of ops would. */
static C NAME(activation_gelu)(C x)
{
    return x * (C)0.5 * (ERF(x * (C)0.70710678118654752440) + 1);
}

static C NAME(activation_gelu_grad)(C g, C x)
{
    const C scaled = x * (C)0.70710678118654752440;
    const C slope = EXP(-(scaled * scaled)) * (C)1.12837916709551257390;
    const C through_erf = g * (x * (C)0.5) * slope * (C)0.70710678118654752440;
    return through_erf + g * (ERF(scaled) + 1) * (C)0.5;
}

static C NAME(tanh_of_gelu)(C x, C term)
{
    return TANH((x + term * x) * (C)0.79788456080286535588);
}

static C NAME(activation_gelu_tanh)(C x)
{
    return x * (C)0.5 * (NAME(tanh_of_gelu)(x, x * x * (C)0.044715) + 1);
}

static C NAME(activation_gelu_tanh_grad)(C g, C x)
{
    const C term = x * x * (C)0.044715, t = NAME(tanh_of_gelu)(x, term);
    const C to_sum = g * (x * (C)0.5) * (1 - t * t) * (C)0.79788456080286535588;
    const C through_tanh = to_sum + to_sum * term + to_sum * x * (C)0.044715 * x * 2;
    return through_tanh + g * (t + 1) * (C)0.5;
}

static C NAME(activation_silu_grad)(C g, C x)
{
    const C s = SIGMOID(x);
    return g * s + g * x * (s * (1 - s));
}
#else
static inline C NAME(absolute)(C x)
{
    return x < 0 ? -x : x;
}

static inline C NAME(remainder)(C x, C y)
{
    return y == 0 ? 0 : x % y;
}

static inline C NAME(floor_remainder)(C x, C y)
{
    if (y == 0)
        return 0;
    C rest = x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* One factor after another would take too long for the largest exponents: by squaring. */
static inline C NAME(integer_power)(C x, C y)
{
    if (y < 0)
        return x == 1 ? 1 : x != -1 ? 0 : y % 2 == 0 ? 1 : -1;
    uint64_t base = (uint64_t)x, power = 1;
    for (uint64_t n = (uint64_t)y; n > 0; n /= 2) {
        if (n % 2 == 1)
            power *= base;
        base *= base;
    }
    return (C)(int64_t)power;
}

static inline C NAME(floor_quotient)(C x, C y)
{
    return y == 0 ? 0 : (x - NAME(floor_remainder)(x, y)) / y;
}
#endif

#define GD_UNARY(name, types, result, formula, ...)                                  \
    KEEP_##types(static gd_status NAME(name)(const gd_kernel_call *call) {           \
        for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) { \
            C x = NAME(read)(call, 0, &w);                                           \
            NAME(write_##result)(call, &w, formula);                                 \
        }                                                                            \
        return GD_OK;                                                                \
    })
#define GD_BINARY(name, types, result, formula, ...)                                 \
    KEEP_##types(static gd_status NAME(name)(const gd_kernel_call *call) {           \
        for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) { \
            C x = NAME(read)(call, 0, &w), y = NAME(read)(call, 1, &w);              \
            NAME(write_##result)(call, &w, formula);                                 \
        }                                                                            \
        return GD_OK;                                                                \
    })
/* The first of three operands is bool where it chooses. */
#define FIRST_CHOOSE(call, walk) \
    const bool x =               \
        gd_ref_load_integer(&(call)->in[0], gd_walk_offset(walk, (call)->in[0].layout)) != 0
#define FIRST_FLOAT(call, walk) const C x = NAME(read)(call, 0, walk)
#define GD_TERNARY(name, types, result, formula, ...)                                \
    KEEP_##types(static gd_status NAME(name)(const gd_kernel_call *call) {           \
        for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) { \
            FIRST_##types(call, &w);                                                 \
            C y = NAME(read)(call, 1, &w), z = NAME(read)(call, 2, &w);              \
            NAME(write_##result)(call, &w, formula);                                 \
        }                                                                            \
        return GD_OK;                                                                \
    })
#include "ops/elementwise.def"

static const gd_kernel_fn NAME(loops)[GD_OP_ELEMENTWISE_COUNT] = {
#define GD_UNARY(name, types, ...)   KEEP_##types([GD_OP_##name] = NAME(name), )
#define GD_BINARY(name, types, ...)  KEEP_##types([GD_OP_##name] = NAME(name), )
#define GD_TERNARY(name, types, ...) KEEP_##types([GD_OP_##name] = NAME(name), )
#include "ops/elementwise.def"
};

#undef FIRST_CHOOSE
#undef FIRST_FLOAT
#undef NAME
#undef C
#undef WIDE
#undef LIBM
#undef OWN
#undef LOAD
#undef STORE
