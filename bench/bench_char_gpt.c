/* bench/bench_char_gpt.c: a training step of the character GPT: 6 layers, 384 wide, 6 heads, 65
 * characters, batch 8 x 256, AdamW, 2 threads. What is measured, and how, is in gpt.c. */
#include "gpt.h"

int main(int count, char **arguments)
{
    const gd_bench_gpt gpt = { .suite = "char_gpt",
                               .vocabulary = 65,
                               .max_length = 256,
                               .layers = 6,
                               .heads = 6,
                               .width = 384,
                               .batch = 8,
                               .time = 256,
                               .seconds = 15 };
    return gd_bench_gpt_run(&gpt, count, arguments);
}
