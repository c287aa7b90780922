/* peak__avx2.c - fused multiply-adds; products of 8-bit integers are summed in two steps. */
#include <immintrin.h>

#define PEAK_SET avx2
#define PEAK_F32
#define PEAK_BYTES 32
#define PEAK_INTEGERS __m256i
#define PEAK_LOAD(c) _mm256_set1_epi8(c)
#define PEAK_DOT(sum, x) _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(sum, x), x))
#define PEAK_DOT_OPERATIONS 64
#include "peak.inc.c"
