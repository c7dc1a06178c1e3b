/* tests/support/kernel_product.c: random products: of matrices and vectors with any batch axes,
 * with a bias and a ReLU, and sums of products named by letters. */
#include "support/kernel_case.h"

#include <gradus/ops.h>

#include <string.h>

enum {
    KIND = K_OWN,
    M,
    N,
    K,
    RANK,                  /* of the first and the second operand */
    BATCH = RANK + 2,      /* sizes of the batch axes, the last first */
    STRETCHED = BATCH + 3, /* of either operand, bit a: batch axis a has size 1 */
    BIAS = STRETCHED + 2,
    RELU,
    COUNT_OF, /* einsum: its operands */
    LETTERS,  /* einsum: of each operand, a decimal digit an axis: 1 is 'a' */
    RESULT = LETTERS + 3,
    LETTER_SIZE, /* einsum: of a … e */
    FIELDS = LETTER_SIZE + 5
};

enum kind { MATMUL, AFFINE, OUTER, DOT, EINSUM, KINDS };

static const fuzz_field fields[FIELDS] = {
    KERNEL_COMMON_FIELDS,
    [KIND] = { "kind", MATMUL, FUZZ_SEED },
    [M] = { "m", 1, FUZZ_NUMBER },
    [N] = { "n", 1, FUZZ_NUMBER },
    [K] = { "k", 1, FUZZ_NUMBER },
    [RANK] = { "rank0", 2, FUZZ_NUMBER },
    [RANK + 1] = { "rank1", 2, FUZZ_NUMBER },
    [BATCH] = { "batch0", 1, FUZZ_NUMBER },
    [BATCH + 1] = { "batch1", 1, FUZZ_NUMBER },
    [BATCH + 2] = { "batch2", 1, FUZZ_NUMBER },
    [STRETCHED] = { "stretched0", 0, FUZZ_SET },
    [STRETCHED + 1] = { "stretched1", 0, FUZZ_SET },
    [BIAS] = { "bias", 0, FUZZ_NUMBER },
    [RELU] = { "relu", 0, FUZZ_NUMBER },
    [COUNT_OF] = { "count", 1, FUZZ_NUMBER },
    [LETTERS] = { "letters0", 1, FUZZ_SEED },
    [LETTERS + 1] = { "letters1", 1, FUZZ_SEED },
    [LETTERS + 2] = { "letters2", 1, FUZZ_SEED },
    [RESULT] = { "result", 0, FUZZ_SEED },
    [LETTER_SIZE] = { "size_a", 1, FUZZ_NUMBER },
    [LETTER_SIZE + 1] = { "size_b", 1, FUZZ_NUMBER },
    [LETTER_SIZE + 2] = { "size_c", 1, FUZZ_NUMBER },
    [LETTER_SIZE + 3] = { "size_d", 1, FUZZ_NUMBER },
    [LETTER_SIZE + 4] = { "size_e", 1, FUZZ_NUMBER },
};

enum { WRONG_K = 1, WRONG_BATCH, WRONG_BIAS, WRONG_SCALAR };

/* ---- drawing ---- */

static double cost(const fuzz_case *c)
{
    double steps = (double)c->field[M] * (double)c->field[N] * (double)c->field[K];
    for (int a = 0; a < 3; a++)
        steps *= (double)c->field[BATCH + a];
    for (int i = 0; i < 5; i++)
        steps *= (double)c->field[LETTER_SIZE + i];
    return steps;
}

/* Some of a … e, in any order, some of them now and then twice. */
static int64_t draw_letters(numbers *n, int most)
{
    int64_t letters = 0;
    int used = 0;
    for (int count = (int)kernel_between(n, 0, most); count > 0; count--) {
        const int letter = (int)kernel_below(n, 5);
        if (used >> letter & 1 && !kernel_one_in(n, 6))
            continue;
        used |= 1 << letter;
        letters = 10 * letters + 1 + letter;
    }
    return letters;
}

static bool has_letter(int64_t letters, int64_t letter)
{
    for (; letters; letters /= 10)
        if (letters % 10 == letter)
            return true;
    return false;
}

/* Letters of the operands, each once, in any order. */
static int64_t draw_result(const fuzz_case *c, numbers *n)
{
    int64_t result = 0;
    const int64_t first = kernel_below(n, 5), step = kernel_between(n, 1, 4);
    for (int i = 0; i < 5; i++) {
        const int64_t letter = 1 + (first + i * step) % 5;
        bool occurs = false;
        for (int o = 0; o < c->field[COUNT_OF]; o++)
            occurs = occurs || has_letter(c->field[LETTERS + o], letter);
        if (occurs && kernel_one_in(n, 2))
            result = 10 * result + letter;
    }
    return result;
}

static void draw_einsum(fuzz_case *c, numbers *n)
{
    c->field[COUNT_OF] = kernel_one_in(n, 6) ? 3 : kernel_one_in(n, 6) ? 1 : 2;
    for (int i = 0; i < c->field[COUNT_OF]; i++)
        c->field[LETTERS + i] = draw_letters(n, 4);
    c->field[RESULT] = draw_result(c, n);
    for (int i = 0; i < 5; i++)
        c->field[LETTER_SIZE + i] = kernel_one_in(n, 30) ? 0 : kernel_size(n, 70);
}

static void draw(fuzz_case *c, numbers *n)
{
    static const int sizes[] = { M,
                                 N,
                                 K,
                                 BATCH,
                                 BATCH + 1,
                                 BATCH + 2,
                                 LETTER_SIZE,
                                 LETTER_SIZE + 1,
                                 LETTER_SIZE + 2,
                                 LETTER_SIZE + 3,
                                 LETTER_SIZE + 4 };
    const int64_t kind = kernel_below(n, 20);
    c->field[KIND] = kind < 11   ? MATMUL
                     : kind < 14 ? AFFINE
                     : kind < 15 ? OUTER
                     : kind < 16 ? DOT
                                 : EINSUM;
    if (c->field[KIND] == EINSUM)
        draw_einsum(c, n);
    else {
        c->field[M] = kernel_size(n, 300);
        c->field[N] = kernel_size(n, 300);
        c->field[K] = kernel_size(n, 1100);
    }
    for (int i = 0; i < 2 && c->field[KIND] == MATMUL; i++) {
        c->field[RANK + i] = kernel_one_in(n, 3) ? kernel_between(n, 1, 5) : 2;
        c->field[STRETCHED + i] = kernel_below(n, 8);
    }
    if (c->field[KIND] == AFFINE)
        c->field[RANK] = kernel_between(n, 1, 4);
    for (int a = 0; a < 3; a++)
        if (c->field[RANK] > 2 + a || c->field[RANK + 1] > 2 + a)
            c->field[BATCH + a] = kernel_size(n, 12);
    kernel_limit(c, sizes, COUNT(sizes), cost, kernel_one_in(n, 40) ? 3e6 : 6e4);
    if (kernel_one_in(n, 40))
        c->field[sizes[kernel_below(n, 6)]] = 0;
    c->field[BIAS] = kernel_one_in(n, 2);
    c->field[RELU] = kernel_one_in(n, 3);
}

/* ---- the call ---- */

/* [batch.., first, second]; a vector is one of them. */
static gd_shape matrix(const fuzz_case *c, int which, int64_t first, int64_t second)
{
    const int rank = (int)c->field[RANK + which];
    gd_shape s = { .rank = rank };
    if (rank == 1) {
        s.dim[0] = which == 0 ? second : first;
        return s;
    }
    s.dim[rank - 2] = first;
    s.dim[rank - 1] = second;
    for (int a = 0; a + 2 < rank; a++)
        s.dim[rank - 3 - a] = c->field[STRETCHED + which] >> a & 1 ? 1 : c->field[BATCH + a];
    return s;
}

static gd_shape lettered(const fuzz_case *c, int64_t letters)
{
    gd_shape reversed = { .rank = 0 }, s;
    for (; letters; letters /= 10)
        reversed.dim[reversed.rank++] = c->field[LETTER_SIZE + letters % 10 - 1];
    s = reversed;
    for (int i = 0; i < s.rank; i++)
        s.dim[i] = reversed.dim[s.rank - 1 - i];
    return s;
}

static int operands(const fuzz_case *c, kernel_operand *o)
{
    static const char *const names[] = { "x", "y", "z" };
    const int64_t wrong = c->field[K_WRONG], kind = c->field[KIND];
    for (int i = 0; i < 3; i++)
        o[i] = (kernel_operand){ .name = names[i],
                                 .dtype = (gd_dtype)c->field[i ? K_OTHER_DTYPE : K_DTYPE] };
    if (kind == EINSUM) {
        for (int i = 0; i < c->field[COUNT_OF]; i++)
            o[i].shape = lettered(c, c->field[LETTERS + i]);
        return (int)c->field[COUNT_OF];
    }
    if (kind == OUTER || kind == DOT) {
        o[0].shape = GD_SHAPE(kind == DOT ? c->field[K] : c->field[M]);
        o[1].shape = GD_SHAPE(kind == DOT ? c->field[K] + (wrong == WRONG_K) : c->field[N]);
        return 2;
    }
    o[0].shape = matrix(c, 0, c->field[M], c->field[K]);
    o[1].shape = matrix(c, 1, c->field[K] + (wrong == WRONG_K), c->field[N]);
    o[2].shape = GD_SHAPE(c->field[N] + (wrong == WRONG_BIAS));
    if (wrong == WRONG_BATCH && o[1].shape.rank > 2)
        o[1].shape.dim[0] += 2;
    if (wrong == WRONG_SCALAR)
        o[1].shape = GD_SCALAR;
    return kind == AFFINE && c->field[BIAS] ? 3 : 2;
}

static void add_letters(char *text, int64_t letters)
{
    char reversed[16];
    int count = 0;
    for (; letters; letters /= 10)
        reversed[count++] = (char)('a' + letters % 10 - 1);
    while (count > 0)
        strncat(text, &reversed[--count], 1);
}

static gd_tensor *call_einsum(kernel_call *k)
{
    const fuzz_case *c = k->c;
    char text[64] = "";
    for (int i = 0; i < c->field[COUNT_OF]; i++) {
        strcat(text, i ? "," : "");
        add_letters(text, c->field[LETTERS + i]);
    }
    strcat(text, "->");
    add_letters(text, c->field[RESULT]);
    const int count = (int)c->field[COUNT_OF];
    kernel_say(k, "    gd_tensor *r = gd_einsum(\"%s\", %d, (gd_tensor *[]){ %s });\n", text, count,
               count == 1   ? "x"
               : count == 2 ? "x, y"
                            : "x, y, z");
    return gd_einsum(text, count, k->in);
}

static gd_tensor *call(kernel_call *k)
{
    const fuzz_case *c = k->c;
    gd_tensor *x = k->in[0], *y = k->in[1], *r = NULL;
    switch (c->field[KIND]) {
    case EINSUM:
        return call_einsum(k);
    case OUTER:
        kernel_say(k, "    gd_tensor *r = gd_outer(x, y);\n");
        return gd_outer(x, y);
    case DOT:
        kernel_say(k, "    gd_tensor *r = gd_dot(x, y);\n");
        return gd_dot(x, y);
    case AFFINE:
        kernel_say(k, "    gd_tensor *r = gd_linear(x, y, %s);\n", c->field[BIAS] ? "z" : "NULL");
        r = gd_linear(x, y, c->field[BIAS] ? k->in[2] : NULL);
        break;
    default:
        kernel_say(k, "    gd_tensor *r = gd_matmul(x, y);\n");
        r = gd_matmul(x, y);
        break;
    }
    /* Of sums that round, which are positive is not for every device the same. */
    if (!c->field[RELU] || c->field[K_VALUES] != VALUES_WHOLE)
        return r;
    kernel_say(k, "    r = gd_relu(r);\n");
    return gd_relu(r);
}

/* Along k, m or n, and over the batch that a stretched operand is multiplied with. */
static double terms(const fuzz_case *c)
{
    double most = 1, all = 1;
    for (int i = M; i <= K; i++)
        most = (double)c->field[i] > most ? (double)c->field[i] : most;
    for (int a = 0; a < 3; a++)
        all *= c->field[BATCH + a] ? (double)c->field[BATCH + a] : 1;
    for (int i = 0; i < 5; i++)
        all *= c->field[LETTER_SIZE + i] ? (double)c->field[LETTER_SIZE + i] : 1;
    /* A bias's gradient is over all rows, and so is that of a weight which other axes stand before.
     */
    return most * all * (c->field[KIND] == AFFINE ? (double)(1 + c->field[M]) : 1) + 1;
}

static bool is_exact(const fuzz_case *c)
{
    (void)c;
    return true;
}

const kernel_family kernel_product = { .name = "product",
                                       .fields = FIELDS,
                                       .field = fields,
                                       .draw = draw,
                                       .operands = operands,
                                       .call = call,
                                       .terms = terms,
                                       .is_exact = is_exact };
