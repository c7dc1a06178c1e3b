/* bench/peak.h: what this machine can do at most, measured: multiply-adds out of registers, and
 * memory. Benches report what they reach as a fraction of these, measured in the same run.
 */
#ifndef GD_BENCH_PEAK_H
#define GD_BENCH_PEAK_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>

/* Floating-point operations per second, a multiply-add counting two, of a loop that touches no
 * memory, on `threads` threads of `isa`. The best of several short rounds: a peak is what nothing
 * disturbed. */
double gd_bench_peak_flops(gd_isa isa, bool f64, int threads);

/* What no cache of this machine holds twice: at least the size of its last-level cache, as the
 * system reports it (a virtual machine's may be its host's, shared with others), and 128 MiB. */
size_t gd_bench_uncached_bytes(void);

/* Bytes per second that cross the memory bus when arrays far larger than the caches are read (sum),
 * copied (c = a; counted twice), and combined (c = a + s*b; counted three times, as in McCalpin's
 * STREAM). The best of several rounds. */
typedef struct gd_bench_bandwidth {
    double read, copy, triad;
} gd_bench_bandwidth;

/* false: no memory for the arrays */
bool gd_bench_memory(int threads, gd_bench_bandwidth *result);

/* Add up, or copy past the caches, these bytes and no more: the bound of a row, taken in turns with
 * it, since on a shared machine the bandwidth is another from one minute to the next. A remainder
 * below 8 bytes is left out. */
void gd_bench_read_bytes(const void *data, size_t bytes, int threads);
void gd_bench_copy_bytes(void *to, const void *from, size_t bytes, int threads);

/* The same for reading, but the median of a few rounds: to be set beside what was measured just
 * before, since on a shared machine the bandwidth is another from one minute to the next. NAN: no
 * memory for the arrays. */
double gd_bench_read_rate(int threads);

#endif
