/* peak.h - what this machine can do at most: multiply-accumulates in registers, and copies. linnet-bench --peaks prints
 * it, and the shares of each step are of it. */
#ifndef LINNET_TOOLS_PEAK_H
#define LINNET_TOOLS_PEAK_H

#include "common.h"

/* Do `rounds` rounds of multiply-accumulates whose operands stay in registers. They return how many operations that
 * was, two for each multiply-accumulate. `seed` keeps compilers from computing the result. */
typedef double peak_loop(long rounds, volatile int *seed);
peak_loop peak_f32_sse2, peak_i8_sse2, peak_f32_avx2, peak_i8_avx2, peak_f32_avx512, peak_i8_avx512, peak_i8_avx512vnni;
peak_loop peak_f32_neon, peak_i8_neon, peak_i8_dotprod;

/* Measures and prints all rates, of so many threads (0: one) and of instruction sets up to `isa_max` of the options.
 * Returns an exit status. */
int tool_print_peaks(const tool_options *options, bool json);

#endif
