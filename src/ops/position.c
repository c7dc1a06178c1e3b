/* ops/position.c: positional encodings: sinusoidal (Vaswani et al. 2017) and rotary (Su et al.
 * 2021). Their angles are computed in f64 on the host, once: they depend on shapes alone.
 */
#include "ops/internal.h"

#include "base/memory.h"
#include "base/options.h"

#include <math.h>

/* cos and sin of position t times base^(-2p/d), [time, pairs] each, as one table [2, time, pairs].
 */
static gd_tensor *angles(gd_context *context, int64_t start, int64_t time, int64_t pairs, int64_t d,
                         double base, gd_dtype dtype)
{
    int64_t count = time * pairs;
    gd_layout layout;
    if (gd_layout_init(&layout, GD_SHAPE(2, time, pairs), GD_F64, "gd_rope") != GD_OK)
        return NULL;
    double *table = gd_alloc((size_t)(2 * count) * sizeof(double) + 1);
    if (!table)
        return NULL;
    for (int64_t p = 0; p < pairs; p++) {
        double frequency = pow(base, -2.0 * (double)p / (double)d);
        for (int64_t t = 0; t < time; t++) {
            table[t * pairs + p] = cos((double)(start + t) * frequency);
            table[count + t * pairs + p] = sin((double)(start + t) * frequency);
        }
    }
    gd_tensor *t =
        gd_as_dtype(gd_from_host(context, GD_SHAPE(2, time, pairs), GD_F64, table), dtype);
    gd_free(table);
    return t;
}

static bool fits(const gd_tensor *x, const gd_rope_options *o)
{
    const gd_layout *l = &x->layout;
    char text[GD_SHAPE_TEXT];
    if (l->rank < 2 || l->rank > GD_MAX_RANK - 1 || l->shape[l->rank - 1] % 2 != 0 ||
        l->shape[l->rank - 1] == 0)
        (void)gd_fail(GD_ERR_SHAPE,
                      "gd_rope: x is %s; 2 to %d axes are needed, the last of an even size",
                      gd_layout_text(l, text), GD_MAX_RANK - 1);
    else if (!(o->rotary_base > 0) || !isfinite(o->rotary_base) || o->start < 0)
        (void)gd_fail(GD_ERR_INVALID,
                      "gd_rope: rotary_base %g must be positive, start %lld not negative",
                      o->rotary_base, (long long)o->start);
    else
        return true;
    return false;
}

static gd_tensor *build_rope(gd_tensor *x, const gd_rope_options *options)
{
    gd_rope_options o = { GD_ROPE_DEFAULTS };
    if (!gd_options_read("gd_rope", &o, sizeof o, options) || !gd_usable(x, "gd_rope") ||
        !fits(x, &o))
        return NULL;
    gd_shape shape = gd_layout_shape(&x->layout), split = shape;
    gd_dtype dtype = gd_float_dtype(x->layout.dtype), compute = gd_real_dtype(dtype);
    int64_t time = shape.dim[shape.rank - 2], d = shape.dim[shape.rank - 1];
    gd_tensor *table = angles(x->context, o.start, time, d / 2, d, o.rotary_base, compute);
    if (!table)
        return NULL;
    gd_tensor *c = gd_select(table, 0, 0), *s = gd_select(table, 0, 1);

    int axis = o.halves ? shape.rank - 1 : shape.rank; /* of the two members of each pair */
    split.rank = shape.rank + 1;
    split.dim[shape.rank - 1] = o.halves ? 2 : d / 2;
    split.dim[shape.rank] = o.halves ? d / 2 : 2;
    gd_tensor *pairs = gd_reshape(gd_as_dtype(x, compute), split);
    gd_tensor *a = gd_select(pairs, axis, 0), *b = gd_select(pairs, axis, 1);
    gd_tensor *rotated[2] = { gd_sub(gd_mul(a, c), gd_mul(b, s)),
                              gd_add(gd_mul(a, s), gd_mul(b, c)) };
    if (!rotated[0] || !rotated[1])
        return NULL;
    return gd_as_dtype(gd_reshape(gd_stack(2, rotated, axis), shape), dtype);
}

gd_tensor *gd_rope_with(gd_tensor *x, const gd_rope_options *options)
{
    return GD_AS("gd_rope", build_rope(x, options));
}

static gd_tensor *build_sinusoidal_positions(gd_context *context, int64_t start, int64_t time,
                                             int64_t d, gd_dtype dtype)
{
    if (!context)
        return NULL;
    if (!gd_dtype_is_float(dtype))
        return gd_fail_null(GD_ERR_DTYPE, "gd_sinusoidal_positions: needs a float dtype, not %s",
                            gd_dtype_name(dtype));
    if (start < 0 || time < 0 || d < 1)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_sinusoidal_positions: start %lld, time %lld, width %lld: none may "
                            "be negative, the width is at least 1",
                            (long long)start, (long long)time, (long long)d);
    int64_t pairs = (d + 1) / 2; /* of an odd width the last cosine is left out */
    gd_tensor *table = angles(context, start, time, pairs, d, 10000, dtype);
    if (!table)
        return NULL;
    gd_tensor *parts[2] = { gd_select(table, 0, 1), gd_select(table, 0, 0) };
    gd_tensor *all = gd_reshape(gd_stack(2, parts, 2), GD_SHAPE(time, 2 * pairs));
    return d % 2 ? gd_slice(all, 1, 0, d, 1) : all;
}

gd_tensor *gd_sinusoidal_positions(gd_context *context, int64_t start, int64_t time, int64_t d,
                                   gd_dtype dtype)
{
    return GD_AS("gd_sinusoidal_positions",
                 build_sinusoidal_positions(context, start, time, d, dtype));
}
