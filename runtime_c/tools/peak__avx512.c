/* peak__avx512.c - as for AVX2, with vectors of 64 bytes. */
#include <immintrin.h>

#define PEAK_SET avx512
#define PEAK_F32
#define PEAK_BYTES 64
#define PEAK_INTEGERS __m512i
#define PEAK_LOAD(c) _mm512_set1_epi8(c)
#define PEAK_DOT(sum, x) _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(sum, x), x))
#define PEAK_DOT_OPERATIONS 128
#include "peak.inc.c"
