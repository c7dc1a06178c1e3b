/* tests/fake_cuda/convolve.c: see convolve.h. Start at fake_convolve. */
#include "convolve.h"

#include <stdlib.h>
#include <string.h>

#include "cudnn.h"

const char *fake_convolution_fault(const fake_convolution *c)
{
    const int64_t *x = c->size[0], *w = c->size[1], *y = c->size[2];
    if (x[0] != y[0] || w[0] != y[1])
        return "batches or channels differ";
    if (w[1] == 0 || x[1] % w[1] || w[0] % (x[1] / w[1]))
        return "channels do not divide into groups";
    for (int a = 0; a < 3; a++) {
        const int64_t room =
            x[2 + a] + c->before[a] + c->after[a] - c->dilation[a] * (w[2 + a] - 1) - 1;
        if (room < 0 || room / c->stride[a] + 1 != y[2 + a])
            return "spatial sizes do not fit";
    }
    return NULL;
}

bool fake_convolution_is_symmetric(const fake_convolution *c)
{
    return memcmp(c->before, c->after, sizeof c->before) == 0 && c->size[0][1] == c->size[1][1];
}

/* To TF32's 11 significant bits, to nearest. */
static float round_to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static int64_t index_of(const int64_t size[5], const int64_t at[5])
{
    int64_t index = 0;
    for (int a = 0; a < 5; a++)
        index = index * size[a] + at[a];
    return index;
}

static bool next(const int64_t size[5], int64_t at[5])
{
    for (int a = 4; a >= 0; a--) {
        if (++at[a] < size[a])
            return true;
        at[a] = 0;
    }
    return false;
}

static int64_t count_of(const int64_t size[5])
{
    return size[0] * size[1] * size[2] * size[3] * size[4];
}

/* Where element `y` meets tap `w` in x; false: outside. */
static bool place_in_x(const fake_convolution *c, const int64_t y[5], const int64_t w[5],
                       int64_t x[5])
{
    const int64_t group = y[1] / (c->size[1][0] / (c->size[0][1] / c->size[1][1]));
    x[0] = y[0];
    x[1] = group * c->size[1][1] + w[1];
    for (int a = 0; a < 3; a++) {
        x[2 + a] = y[2 + a] * c->stride[a] - c->before[a] + w[2 + a] * c->dilation[a];
        if (x[2 + a] < 0 || x[2 + a] >= c->size[0][2 + a])
            return false;
    }
    return true;
}

/* One product, added to its sum. */
static void add_product(const fake_convolution *c, double *sums, const int64_t index[3])
{
    float factor[3];
    for (int k = 0; k < 3; k++)
        if (k != c->result) {
            factor[k] = c->operand[k][index[k]];
            if (c->engine == FAKE_ENGINE_TF32 || c->engine == FAKE_ENGINE_DOWN_CONVERTING)
                factor[k] = round_to_tf32(factor[k]);
        }
    const int a = c->result == 0 ? 1 : 0, b = c->result == 2 ? 1 : 2;
    const double sum = sums[index[c->result]] + (double)factor[a] * (double)factor[b];
    sums[index[c->result]] = c->engine == FAKE_ENGINE_FALLBACK ? (double)(float)sum : sum;
}

void fake_convolve(const void *convolution)
{
    const fake_convolution *c = convolution;
    const int64_t count = count_of(c->size[c->result]);
    double *sums = calloc((size_t)count, sizeof *sums);
    int64_t y[5] = { 0 };
    memset(c->workspace, 0xA5, c->workspace_bytes);
    do {
        int64_t w[5] = { 0 }, x[5];
        const int64_t first[5] = { 1, c->size[1][1], c->size[1][2], c->size[1][3], c->size[1][4] };
        do {
            const int64_t tap[5] = { y[1], w[1], w[2], w[3], w[4] };
            if (place_in_x(c, y, tap, x))
                add_product(c, sums,
                            (int64_t[]){ index_of(c->size[0], x), index_of(c->size[1], tap),
                                         index_of(c->size[2], y) });
        } while (next(first, w));
    } while (next(c->size[2], y));
    for (int64_t i = 0; i < count; i++)
        c->operand[c->result][i] = (float)sums[i];
    free(sums);
}
