/* peak.h - measures the highest rates of this machine: of multiply-accumulates in registers, and of copies.
 * linnet-bench
 * --peaks prints these rates, and the shares that it prints for each step refer to them. */
#ifndef LINNET_TOOLS_PEAK_H
#define LINNET_TOOLS_PEAK_H

#include "common.h"

/* The type of functions that do `rounds` rounds of multiply-accumulates whose operands stay in registers. They return
 * the number of operations, two for each multiply-accumulate. `seed` keeps compilers from computing the result in
 * advance. */
typedef double peak_loop(long rounds, volatile int *seed);
peak_loop peak_f32_sse2, peak_i8_sse2, peak_f32_avx2, peak_i8_avx2, peak_f32_avx512, peak_i8_avx512, peak_i8_avx512vnni;
peak_loop peak_f32_neon, peak_i8_neon, peak_i8_dotprod;

/* Measures and prints all rates for options->threads threads (0: one thread) and for instruction sets up to
 * options->isa_max. Returns an exit status. */
int tool_print_peaks(const tool_options *options, bool json);

#endif
