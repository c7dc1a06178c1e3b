/* bench/bench_gpt2_124m.c: GPT-2, 124M parameters: a training step of batch 4 x 64 with AdamW, and
 * a generated token at batch 1, 2 threads. What is measured, and how, is in gpt.c. */
#include "gpt.h"

#include <gradus/language.h>

int main(int count, char **arguments)
{
    const gd_bench_gpt gpt = {
        .suite = "gpt2_124m", GD_GPT2_124M, .batch = 4, .time = 64, .seconds = 20, .generates = true
    };
    return gd_bench_gpt_run(&gpt, count, arguments);
}
