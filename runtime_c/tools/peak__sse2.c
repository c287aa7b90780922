/* peak__sse2.c - a multiplication and an addition; 8-bit integers are multiplied as 16-bit ones. */
#include <emmintrin.h>

#define PEAK_SET sse2
#define PEAK_F32
#define PEAK_BYTES 16
#define PEAK_INTEGERS __m128i
#define PEAK_LOAD(c) _mm_set1_epi8(c)
#define PEAK_DOT(sum, x) _mm_add_epi32(sum, _mm_madd_epi16(sum, x))
#define PEAK_DOT_OPERATIONS 16
#include "peak.inc.c"
