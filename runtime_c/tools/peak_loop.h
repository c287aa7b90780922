/* peak_loop.h - the loops of multiply-accumulates in registers, which linnet-bench --peaks times. Each instruction set
 * has a file peak__ISA.c, which makes its loops from peak.inc.c. */
#ifndef LN_TOOLS_PEAK_LOOP_H
#define LN_TOOLS_PEAK_LOOP_H

/* The type of functions that do `rounds` rounds of multiply-accumulates whose operands stay in registers. They return
 * the number of operations, two for each multiply-accumulate. `seed` keeps compilers from computing the result in
 * advance. */
typedef double peak_loop(long rounds, volatile int *seed);
peak_loop peak_f32_sse2, peak_i8_sse2, peak_f32_avx2, peak_i8_avx2, peak_f32_avx512, peak_i8_avx512, peak_i8_avx512vnni;
peak_loop peak_f32_neon, peak_i8_neon, peak_i8_dotprod;

#endif
