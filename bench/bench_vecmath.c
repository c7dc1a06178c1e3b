/* bench/bench_vecmath.c: our elementary functions on an array that stays in the first-level cache,
 * for each instruction set of this machine, against a loop over libm's. One JSON object a line on
 * stdout, a table on stderr.
 *
 * Results are compared with libm's before anything is timed. Ours and libm take turns; the median
 * of the rounds counts.
 *
 * usage: bench_vecmath [function]
 */
#include "measure.h"

#include "backend/cpu/vecmath_table.h"
#include "base/cpu.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 2048, ROUNDS = 41 };
static const double sample_seconds = 20e-6;

typedef struct peer {
    const char *name;
    double low, high; /* arguments are spread evenly between these */
    float (*f32)(float);
    double (*f64)(double);
} peer;

static float sigmoidf(float x)
{
    return 1 / (1 + expf(-x));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static float softplusf(float x)
{
    return log1pf(expf(x));
}

static double softplus(double x)
{
    return log1p(exp(x));
}

static float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static const peer peers[] = {
    { "exp", -10, 10, expf, exp },
    { "exp2", -10, 10, exp2f, exp2 },
    { "expm1", -10, 10, expm1f, expm1 },
    { "sigmoid", -10, 10, sigmoidf, sigmoid },
    { "log", 1e-3, 10, logf, log },
    { "log2", 1e-3, 10, log2f, log2 },
    { "log10", 1e-3, 10, log10f, log10 },
    { "log1p", -0.9, 10, log1pf, log1p },
    { "softplus", -10, 10, softplusf, softplus },
    { "tanh", -5, 5, tanhf, tanh },
    { "cosh", -5, 5, coshf, cosh },
    { "sinh", -5, 5, sinhf, sinh },
    { "asinh", -5, 5, asinhf, asinh },
    { "acosh", 1, 5, acoshf, acosh },
    { "atanh", -0.99, 0.99, atanhf, atanh },
    { "rsqrt", 1e-3, 10, rsqrtf, rsqrt },
    { "sin", -10, 10, sinf, sin },
    { "cos", -10, 10, cosf, cos },
    { "tan", -10, 10, tanf, tan },
    { "asin", -1, 1, asinf, asin },
    { "acos", -1, 1, acosf, acos },
    { "atan", -5, 5, atanf, atan },
    { "erf", -3, 3, erff, erf },
    { "erfc", -3, 3, erfcf, erfc },
    { "erfinv", -0.99, 0.99, NULL, NULL },
    { "lgamma", 0.1, 20, lgammaf, lgamma },
};

static float x32[LENGTH], y32[LENGTH], want32[LENGTH];
static double x64[LENGTH], y64[LENGTH], want64[LENGTH];

static void run_peer(const peer *p, bool f64)
{
    if (f64)
        for (int i = 0; i < LENGTH; i++)
            want64[i] = p->f64(x64[i]);
    else
        for (int i = 0; i < LENGTH; i++)
            want32[i] = p->f32(x32[i]);
}

static void run_ours(const gd_vecmath_unary *row, bool f64)
{
    if (f64)
        row->f64(x64, y64, LENGTH);
    else
        row->f32(x32, y32, LENGTH);
}

/* Whether our last results agree with libm's, to the few ulp that either may be wrong. */
static bool agree(bool f64)
{
    for (int i = 0; i < LENGTH; i++) {
        double got = f64 ? y64[i] : (double)y32[i], want = f64 ? want64[i] : (double)want32[i];
        if (!(fabs(got - want) <= (f64 ? 0x1p-49 : 0x1p-20) * fabs(want) + (f64 ? 1e-15 : 1e-7)))
            return false;
    }
    return true;
}

/* Whether erf of our last results gives what they were made from: for erfinv, which libm lacks. */
static bool inverts_erf(bool f64)
{
    for (int i = 0; i < LENGTH; i++) {
        double back = f64 ? erf(y64[i]) : erf((double)y32[i]), from = f64 ? x64[i] : (double)x32[i];
        if (!(fabs(back - from) <= (f64 ? 0x1p-50 : 0x1p-22)))
            return false;
    }
    return true;
}

typedef struct turn {
    const peer *peer;
    const gd_vecmath_unary *row;
    bool f64;
} turn;

static void turn_ours(void *user)
{
    const turn *t = user;
    run_ours(t->row, t->f64);
}

static void turn_peer(void *user)
{
    const turn *t = user;
    run_peer(t->peer, t->f64);
}

/* Measures one function with one instruction set, and prints it. */
static void bench_case(const peer *p, const gd_vecmath_unary *row, const char *isa, bool f64)
{
    for (int i = 0; i < LENGTH; i++) {
        /* in an order that no branch predictor learns */
        x64[i] = p->low + (p->high - p->low) * ((i * 1021 % LENGTH) + 0.5) / LENGTH;
        x32[i] = (float)x64[i];
    }
    run_ours(row, f64);
    const bool compared = p->f32 != NULL;
    bool verified;
    if (compared) {
        run_peer(p, f64);
        verified = agree(f64);
    } else {
        verified = inverts_erf(f64);
    }
    turn t = { p, row, f64 };
    gd_bench_runner runners[] = { { .run = turn_ours, .user = &t },
                                  { .run = turn_peer, .user = &t } };
    gd_bench_take_turns(runners, compared ? 2 : 1, ROUNDS, sample_seconds, 1);
    char name[64];
    snprintf(name, sizeof name, "%s %s %s", p->name, f64 ? "f64" : "f32", isa);
    gd_bench_row printed = gd_bench_make_row("vecmath", name, 1, "ns/element",
                                             runners[0].timing.seconds / LENGTH * 1e9, verified);
    printed.ours_spread = runners[0].timing.spread;
    if (compared) {
        printed.peer = runners[1].timing.seconds / LENGTH * 1e9;
        printed.peer_spread = runners[1].timing.spread;
        printed.peer_name = "libm";
    }
    gd_bench_print_row(&printed);
}

static const gd_vecmath_table *table_of(gd_isa isa)
{
    if (!gd_isa_available(isa))
        return NULL;
    switch (isa) {
    case GD_ISA_BASELINE:
        return &gd_vecmath_baseline;
#if defined(GD_HAVE_AVX2)
    case GD_ISA_AVX2:
        return &gd_vecmath_avx2;
#endif
#if defined(GD_HAVE_AVX512)
    case GD_ISA_AVX512:
        return &gd_vecmath_avx512;
#endif
#if defined(GD_HAVE_NEON)
    case GD_ISA_NEON:
        return &gd_vecmath_neon;
#endif
    default:
        return NULL;
    }
}

int main(int argc, char **argv)
{
    gd_bench_pin(1);
    for (size_t k = 0; k < sizeof peers / sizeof *peers; k++) {
        if (argc > 1 && strcmp(argv[1], peers[k].name) != 0)
            continue;
        for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
            const gd_vecmath_table *table = table_of((gd_isa)isa);
            for (int i = 0; table != NULL && i < table->unary_count; i++)
                if (strcmp(table->unary[i].name, peers[k].name) == 0)
                    for (int f64 = 0; f64 < 2; f64++)
                        bench_case(&peers[k], &table->unary[i], gd_isa_name((gd_isa)isa), f64);
        }
    }
    return gd_bench_all_verified() ? 0 : 1;
}
