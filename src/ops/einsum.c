/* ops/einsum.c: sums of products named by letters, "bij,bjk->bik". Each operand becomes a TERM, a
 * tensor with a label for each axis: repeated labels are taken on the diagonal, labels nothing else
 * needs are summed away, and then two terms at a time are contracted, the cheapest pair first, as
 * one batched matrix product. Start at build_einsum().
 */
#include "ops/internal.h"

/* Labels: 0 … 25 for A … Z, 26 … 51 for a … z, then the axes an ellipsis stands for, the last of
 * which is the largest label. */
enum { LETTERS = 52, LABELS = LETTERS + GD_MAX_RANK, MOST_OPERANDS = 32 };

typedef struct term {
    gd_tensor *t;
    int8_t label[GD_MAX_RANK];
    int rank;
} term;

typedef struct einsum {
    const char *equation;
    term term[MOST_OPERANDS];
    int count;
    int64_t size[LABELS];
    int8_t out[GD_MAX_RANK];
    int out_rank;
    int dots; /* axes the longest ellipsis stands for */
} einsum;

static bool refuse(const einsum *e, const char *why)
{
    (void)gd_fail(GD_ERR_INVALID, "gd_einsum: \"%s\": %s", e->equation, why);
    return false;
}

static int refuse_labels(const einsum *e, const char *why)
{
    (void)refuse(e, why);
    return -1;
}

static int label_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static int axis_of(const term *t, int label)
{
    for (int i = 0; i < t->rank; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

/* ---- reading the equation ---- */

/* Labels up to a ',', a '-' or the end; dots: how many axes an ellipsis stands for, -1: unknown
 * until the rank is. The number of labels, or -1 (recorded). */
static int read_labels(const einsum *e, const char **at, int rank, int dots, int8_t *label)
{
    int letters = 0;
    bool has_dots = false;
    for (const char *c = *at; *c && *c != ',' && *c != '-'; c++)
        letters += label_of(*c) >= 0;
    int n = 0;
    for (; **at && **at != ',' && **at != '-'; ++*at) {
        if (**at == ' ')
            continue;
        if (**at == '.') {
            int stands_for = dots < 0 ? rank - letters : dots;
            if (has_dots || strncmp(*at, "...", 3) != 0)
                return refuse_labels(e, "an ellipsis is three dots, once in each operand");
            if (stands_for < 0 || n + stands_for > GD_MAX_RANK)
                return refuse_labels(
                    e, "an operand has fewer axes than letters, or a result too many");
            has_dots = true;
            for (int i = 0; i < stands_for; i++)
                label[n++] = (int8_t)(LABELS - stands_for + i);
            *at += 2;
            continue;
        }
        if (label_of(**at) < 0)
            return refuse_labels(e, "only letters, commas, \"...\" and \"->\" are understood");
        if (n == GD_MAX_RANK)
            return refuse_labels(e, "more letters than a tensor can have axes");
        label[n++] = (int8_t)label_of(**at);
    }
    return n;
}

static bool read_operands(einsum *e, const char **at)
{
    for (int i = 0; i < e->count; i++) {
        term *t = &e->term[i];
        int n = read_labels(e, at, t->t->layout.rank, -1, t->label);
        if (n < 0)
            return false;
        if (n != t->t->layout.rank) {
            char shape[GD_SHAPE_TEXT];
            (void)gd_fail(GD_ERR_SHAPE, "gd_einsum: \"%s\": operand %d is %s, its letters are %d",
                          e->equation, i, gd_layout_text(&t->t->layout, shape), n);
            return false;
        }
        t->rank = n;
        for (int k = 0; k < n; k++) {
            int label = (unsigned char)t->label[k];
            int64_t size = t->t->layout.shape[k], *known = &e->size[label];
            if (label >= LETTERS && LABELS - label > e->dots)
                e->dots = LABELS - label;
            if (*known >= 0 && *known != size && *known != 1 && size != 1) {
                (void)gd_fail(GD_ERR_SHAPE,
                              "gd_einsum: \"%s\": axis %d of operand %d has size %lld, another one "
                              "of that name %lld",
                              e->equation, k, i, (long long)size, (long long)*known);
                return false;
            }
            if (*known < 0 || *known == 1)
                *known = size;
        }
        if (i + 1 < e->count ? **at != ',' : **at == ',')
            return refuse(e, "the number of operands is another than given");
        *at += i + 1 < e->count;
    }
    return true;
}

/* Without "->": the ellipsis, then in alphabetical order the letters that occur once. */
static void imply_result(einsum *e)
{
    for (int i = 0; i < e->dots; i++)
        e->out[e->out_rank++] = (int8_t)(LABELS - e->dots + i);
    for (int label = 0; label < LETTERS; label++) {
        int seen = 0;
        for (int i = 0; i < e->count; i++)
            for (int k = 0; k < e->term[i].rank; k++)
                seen += e->term[i].label[k] == label;
        if (seen == 1 && e->out_rank < GD_MAX_RANK)
            e->out[e->out_rank++] = (int8_t)label;
        else if (seen == 1)
            e->out_rank = GD_MAX_RANK + 1;
    }
}

static bool read_result(einsum *e, const char *at)
{
    if (!*at) {
        imply_result(e);
        return e->out_rank <= GD_MAX_RANK || refuse(e, "the result would have too many axes");
    }
    if (strncmp(at, "->", 2) != 0)
        return refuse(e, "the result is written behind \"->\"");
    at += 2;
    int n = read_labels(e, &at, 0, e->dots, e->out);
    if (n < 0)
        return false;
    if (*at)
        return refuse(e, "there is one result");
    e->out_rank = n;
    for (int i = 0; i < n; i++) {
        if (e->size[e->out[i]] < 0)
            return refuse(e, "the result has a letter no operand has");
        for (int k = 0; k < i; k++)
            if (e->out[i] == e->out[k])
                return refuse(e, "the result has a letter twice");
    }
    bool dots_kept = e->dots == 0;
    for (int i = 0; i < n; i++)
        dots_kept |= e->out[i] == LABELS - e->dots;
    return dots_kept || refuse(e, "the result must have the ellipsis the operands have");
}

/* ---- terms ---- */

static bool is_kept(const einsum *e, int label, const term *a, const term *b)
{
    for (int i = 0; i < e->out_rank; i++)
        if (e->out[i] == label)
            return true;
    for (int i = 0; i < e->count; i++)
        if (&e->term[i] != a && &e->term[i] != b && axis_of(&e->term[i], label) >= 0)
            return true;
    return false;
}

static void drop_label(term *t, int axis)
{
    t->rank--;
    for (int i = axis; i < t->rank; i++)
        t->label[i] = t->label[i + 1];
}

/* Each label once in a term, on the diagonal; no axes of size 1 that others stretch. */
static void simplify_axes(const einsum *e, term *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->t && t->t->layout.shape[i] == 1 && e->size[t->label[i]] != 1) {
            t->t = gd_squeeze(t->t, i);
            drop_label(t, i--);
        }
    for (int i = 0; t->t && i < t->rank; i++)
        for (int k = i + 1; t->t && k < t->rank; k++)
            if (t->label[i] == t->label[k]) {
                int8_t label = t->label[i];
                t->t = gd_diagonal(t->t, i, k, 0);
                drop_label(t, k);
                drop_label(t, i);
                t->label[t->rank++] = label; /* the diagonal is the last axis */
                k = i;                       /* another axis stands at i now */
            }
}

/* bf16 terms stay as they are for products; all else is computed in f32. */
static gd_tensor *widened(gd_tensor *t)
{
    return t && gd_dtype_is_half(t->layout.dtype) ? gd_widen(t) : t;
}

/* Sum over the labels nothing else needs. */
static void sum_alone(const einsum *e, term *t)
{
    gd_axes axes = { .count = 0 };
    for (int i = 0; i < t->rank; i++)
        if (!is_kept(e, t->label[i], t, t))
            axes.axis[axes.count++] = i;
    if (axes.count == 0)
        return;
    gd_tensor *x = widened(t->t);
    t->t = x ? gd_as_dtype(gd_sum(x, axes, false), x->layout.dtype) : NULL;
    for (int i = axes.count; i-- > 0;)
        drop_label(t, axes.axis[i]);
}

/* ---- two terms ---- */

/* The labels of a pair by their part: in both and kept, only left, only right, in both and summed.
 */
typedef struct parts {
    int8_t batch[GD_MAX_RANK], left[GD_MAX_RANK], right[GD_MAX_RANK], inner[GD_MAX_RANK];
    int batches, lefts, rights, inners;
} parts;

static parts divide(const einsum *e, const term *a, const term *b)
{
    parts p = { .batches = 0 };
    for (int i = 0; i < a->rank; i++) {
        int8_t label = a->label[i];
        if (axis_of(b, label) < 0)
            p.left[p.lefts++] = label;
        else if (is_kept(e, label, a, b))
            p.batch[p.batches++] = label;
        else
            p.inner[p.inners++] = label;
    }
    for (int i = 0; i < b->rank; i++)
        if (axis_of(a, b->label[i]) < 0)
            p.right[p.rights++] = b->label[i];
    return p;
}

static double volume(const einsum *e, const int8_t *label, int n)
{
    double product = 1.0;
    for (int i = 0; i < n; i++)
        product *= (double)e->size[label[i]];
    return product;
}

static int64_t length(const einsum *e, const int8_t *label, int n)
{
    int64_t product = 1;
    for (int i = 0; i < n; i++)
        product *= e->size[label[i]];
    return product;
}

/* t's axes in the order first, second, third. */
static gd_tensor *arrange(const term *t, const int8_t *first, int n1, const int8_t *second, int n2,
                          const int8_t *third, int n3)
{
    gd_axes order = { .count = 0 };
    for (int i = 0; i < n1; i++)
        order.axis[order.count++] = axis_of(t, first[i]);
    for (int i = 0; i < n2; i++)
        order.axis[order.count++] = axis_of(t, second[i]);
    for (int i = 0; i < n3; i++)
        order.axis[order.count++] = axis_of(t, third[i]);
    return gd_permute(t->t, order);
}

/* The product of a and b, summed over what only they share: labels batch, left, right. */
static gd_tensor *multiply(const einsum *e, const parts *p, const term *a, const term *b)
{
    int64_t batch = length(e, p->batch, p->batches), inner = length(e, p->inner, p->inners);
    int64_t left = length(e, p->left, p->lefts), right = length(e, p->right, p->rights);
    gd_tensor *x = arrange(a, p->batch, p->batches, p->left, p->lefts, p->inner, p->inners);
    gd_tensor *y = arrange(b, p->batch, p->batches, p->inner, p->inners, p->right, p->rights);
    if (!x || !y)
        return NULL;
    if (p->inners == 0)
        return gd_mul(widened(gd_reshape(x, GD_SHAPE(batch, left, 1))),
                      widened(gd_reshape(y, GD_SHAPE(batch, 1, right))));
    if (left == 1 && right == 1 && batch > 1) {
        gd_tensor *each = gd_mul(widened(gd_reshape(x, GD_SHAPE(batch, inner))),
                                 widened(gd_reshape(y, GD_SHAPE(batch, inner))));
        return each ? gd_as_dtype(gd_sum(each, GD_AXES(1), false), each->layout.dtype) : NULL;
    }
    if (p->batches == 0)
        return gd_product_sums(gd_reshape(x, GD_SHAPE(left, inner)),
                               gd_reshape(y, GD_SHAPE(inner, right)));
    return gd_product_sums(gd_reshape(x, GD_SHAPE(batch, left, inner)),
                           gd_reshape(y, GD_SHAPE(batch, inner, right)));
}

static bool contract(einsum *e, int i, int k)
{
    term *a = &e->term[i], *b = &e->term[k];
    parts p = divide(e, a, b);
    term r = { .rank = p.batches + p.lefts + p.rights };
    if (r.rank > GD_MAX_RANK)
        return refuse(e, "a product on the way would have too many axes");
    gd_shape shape = { .rank = r.rank };
    memcpy(r.label, p.batch, (size_t)p.batches);
    memcpy(r.label + p.batches, p.left, (size_t)p.lefts);
    memcpy(r.label + p.batches + p.lefts, p.right, (size_t)p.rights);
    for (int axis = 0; axis < r.rank; axis++)
        shape.dim[axis] = e->size[r.label[axis]];
    r.t = multiply(e, &p, a, b);
    r.t = r.t ? gd_reshape(r.t, shape) : NULL;
    e->term[i] = r;
    e->term[k] = e->term[--e->count];
    return r.t != NULL;
}

/* The pair whose product costs least; pairs that share a label go before those that do not. */
static void choose_pair(const einsum *e, int *first, int *second)
{
    double best = 0.0;
    bool best_shares = false, any = false;
    for (int i = 0; i < e->count; i++)
        for (int k = i + 1; k < e->count; k++) {
            parts p = divide(e, &e->term[i], &e->term[k]);
            double cost = volume(e, p.batch, p.batches) * volume(e, p.left, p.lefts) *
                          volume(e, p.right, p.rights) * volume(e, p.inner, p.inners);
            bool shares = p.batches + p.inners > 0;
            if (any && (best_shares > shares || (best_shares == shares && cost >= best)))
                continue;
            any = true;
            best = cost;
            best_shares = shares;
            *first = i;
            *second = k;
        }
}

static gd_tensor *build_einsum(const char *equation, gd_tensor *const *operands, int count)
{
    if (!equation || !operands || count < 1 || count > MOST_OPERANDS)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_einsum: takes an equation and 1 to %d operands, %d given",
                            MOST_OPERANDS, count);
    einsum e = { .equation = equation, .count = count };
    for (int i = 0; i < LABELS; i++)
        e.size[i] = -1;
    for (int i = 0; i < count; i++) {
        if (!gd_usable(operands[i], "gd_einsum"))
            return NULL;
        e.term[i].t = gd_autocast(GD_OP_matmul, operands[i]);
        if (!e.term[i].t)
            return NULL;
    }
    gd_dtype dtype = e.term[0].t->layout.dtype;
    for (int i = 1; i < count; i++)
        dtype = gd_dtype_promote(dtype, e.term[i].t->layout.dtype);
    const gd_dtype compute =
        gd_dtype_is_half(dtype) ? GD_F32 : gd_compute_dtype(GD_OP_matmul, dtype);
    dtype = dtype == GD_BOOL ? compute : dtype;
    const char *at = equation;
    if (!read_operands(&e, &at) || !read_result(&e, at))
        return NULL;
    for (int i = 0; i < e.count; i++) {
        if (e.term[i].t->layout.dtype != dtype || !gd_dtype_is_half(dtype))
            e.term[i].t = gd_as_dtype(e.term[i].t, compute);
        simplify_axes(&e, &e.term[i]);
        if (e.term[i].t)
            sum_alone(&e, &e.term[i]);
        if (!e.term[i].t)
            return NULL;
    }
    while (e.count > 1) {
        int i = 0, k = 1;
        choose_pair(&e, &i, &k);
        if (!contract(&e, i, k))
            return NULL;
    }
    return gd_as_dtype(arrange(&e.term[0], e.out, e.out_rank, NULL, 0, NULL, 0), dtype);
}

gd_tensor *gd_einsum(const char *equation, int count, gd_tensor *const *operands)
{
    return GD_AS("gd_einsum", build_einsum(equation, operands, count));
}
