/* peak__avx512vnni.c - one instruction multiplies and sums 8-bit integers. */
#include <immintrin.h>

#define PEAK_SET avx512vnni
#define PEAK_BYTES 64
#define PEAK_INTEGERS __m512i
#define PEAK_LOAD(c) _mm512_set1_epi8(c)
#define PEAK_DOT(sum, x) _mm512_dpbusd_epi32(sum, x, x)
#define PEAK_DOT_OPERATIONS 128
#include "peak.inc.c"
