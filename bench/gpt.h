/* bench/gpt.h: what the benches of GPT-2's architecture share: a training step against PyTorch, and
 * generation. */
#ifndef GD_BENCH_GPT_H
#define GD_BENCH_GPT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gd_bench_gpt {
    const char *suite;
    int64_t vocabulary, max_length, layers, heads, width;
    int64_t batch, time; /* of a training step */
    double seconds;      /* of timing, for each side */
    bool generates;      /* also measure a token at batch 1 */
} gd_bench_gpt;

/* The whole program: returns what main() returns. "--problem FILE" writes the weights all sides begin
 * with; a mode (gd_bench_parse_way, or "--generate") and that file: one side of ours. */
int gd_bench_gpt_run(const gd_bench_gpt *gpt, int argument_count, char **arguments);

#endif
