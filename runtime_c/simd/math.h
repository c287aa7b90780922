/* math.h - linnet's own elementary functions of f32, which give the same bits on every ISA, scalar or vectorized.
 * Branch-free C over IEEE add, multiply, divide and square root, without FMA; accuracy is in docs/numerics.md. */
#ifndef LN_MATH_H
#define LN_MATH_H

/* Methods. The range reductions and reconstructions are the classical ones (W. J. Cody and W. Waite, Software Manual
 * for the Elementary Functions, 1980; J.-M. Muller, Elementary Functions, 3rd ed. 2016). The polynomials are minimax
 * fits made for this file. exp, tanh, sigmoid and erf, which networks use most, compute in f32. The others compute in
 * f64 internally, at half the speed, which leaves little error beyond the final rounding. Large arguments of sin, cos
 * and tan are reduced with the bits of 2/pi (M. Payne and R. Hanek, 1983). Compile with -ffp-contract=off. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t ln_bits_f(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float ln_from_bits_f(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline uint64_t ln_bits_d(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double ln_from_bits_d(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float ln_abs_f(float x) { return ln_from_bits_f(ln_bits_f(x) & 0x7fffffffu); }
static inline float ln_copysign_f(float x, float sign) {
    return ln_from_bits_f((ln_bits_f(x) & 0x7fffffffu) | (ln_bits_f(sign) & 0x80000000u));
}
static inline double ln_abs_d(double x) { return ln_from_bits_d(ln_bits_d(x) & 0x7fffffffffffffffu); }

/* ---- rounding: by adding and subtracting 2^23, above which every float is an integer ---- */

static inline float ln_round_f(float x) {
    float a = ln_abs_f(x), r = (a + 8388608.0f) - 8388608.0f;
    return a < 8388608.0f ? ln_copysign_f(r, x) : x;
}
static inline float ln_trunc_f(float x) {
    float a = ln_abs_f(x), r = (a + 8388608.0f) - 8388608.0f;
    r = r > a ? r - 1.0f : r;
    return a < 8388608.0f ? ln_copysign_f(r, x) : x;
}
static inline float ln_floor_f(float x) {
    float r = ln_round_f(x);
    r = r > x ? r - 1.0f : r;
    return r == 0.0f ? ln_copysign_f(r, x) : r;
}
static inline float ln_ceil_f(float x) {
    float r = ln_round_f(x);
    r = r < x ? r + 1.0f : r;
    return r == 0.0f ? ln_copysign_f(r, x) : r;
}

/* ---- exp and functions based on it, in f32 ---- */

static inline float ln_exp_f(float x) {
    /* x = n ln 2 + r; adding 1.5 * 2^23 leaves n in the low bits of t. */
    float c = x > 89.5f ? 89.5f : x;
    c = c < -105.0f ? -105.0f : c;
    float t = c * 0x1.715476p+0f + 12582912.0f;
    float n = t - 12582912.0f;
    float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6db4e6p-10f;
    p = p * r + 0x1.123be0p-7f;
    p = p * r + 0x1.55545ep-5f;
    p = p * r + 0x1.55548ep-3f;
    p = p * r + 0x1.000000p-1f;
    p = ((p * r) * r + r) + 1.0f;
    /* 2^n is applied in two factors, so that results below the smallest normal number are rounded once. */
    int32_t k = (int32_t)(ln_bits_f(t) - 0x4b400000u), half = k >> 1;
    float s1 = ln_from_bits_f((uint32_t)(half + 127) << 23), s2 = ln_from_bits_f((uint32_t)(k - half + 127) << 23);
    return p * s1 * s2;
}

/* 1 / (1 + exp(-x)) with one division. -|x| = n ln 2 + r. exp(r) is about (p + q) / (p - q), its Pade approximant, with
 * p = 120 + 12 r^2 and q = r (60 + r^2), and an error of r^7 / 100800. */
static inline float ln_sigmoid_f(float x) {
    float c = -ln_abs_f(x);
    c = c < -105.0f ? -105.0f : c;
    float t = c * 0x1.715476p+0f + 12582912.0f;
    float n = t - 12582912.0f;
    float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f, u = r * r;
    float p = u * 0.1f + 1.0f, q = (u * 0x1.111112p-7f + 0.5f) * r;
    int32_t k = (int32_t)(ln_bits_f(t) - 0x4b400000u), half = k >> 1;
    float s1 = ln_from_bits_f((uint32_t)(half + 127) << 23), s2 = ln_from_bits_f((uint32_t)(k - half + 127) << 23);
    float above = p - q, below = (p + q) * s1 * s2; /* the sigmoids of |x| and -|x|, times their sum */
    return (x < 0.0f ? below : above) / (above + below);
}

static inline float ln_tanh_f(float x) {
    float a = ln_abs_f(x), u = x * x;
    float p = -0x1.768474p-8f;
    p = p * u + 0x1.524e60p-6f;
    p = p * u + -0x1.b8430ep-5f;
    p = p * u + 0x1.110760p-3f;
    p = p * u + -0x1.555534p-2f;
    float small = p * u * x + x;
    float big = 1.0f - 2.0f / (ln_exp_f(a + a) + 1.0f);
    return ln_copysign_f(a < 0.625f ? small : big, x);
}

static inline float ln_erf_f(float x) {
    float a = ln_abs_f(x), u = x * x;
    float p = 0x1.5e062ep-14f;
    p = p * u + -0x1.aaa2d8p-11f;
    p = p * u + 0x1.54d42ap-8f;
    p = p * u + -0x1.b80ff2p-6f;
    p = p * u + 0x1.ce2e1cp-4f;
    p = p * u + -0x1.812744p-2f;
    p = p * u + 0x1.06eba8p-3f;
    float small = p * x + x;
    /* erf = 1 - exp(q(a)), where q is a fit of log(erfc(a)). From 4 on the result is 1. */
    float z = a > 4.0f ? 4.0f : a;
    float q = -0x1.5ecdaep-16f;
    q = q * z + 0x1.c54d54p-12f;
    q = q * z + -0x1.10aa06p-8f;
    q = q * z + 0x1.9b1958p-6f;
    q = q * z + -0x1.bb5650p-4f;
    q = q * z + -0x1.444b42p-1f;
    q = q * z + -0x1.212698p+0f;
    q = q * z + 0x1.65ac1ep-13f;
    float big = ln_copysign_f(1.0f - ln_exp_f(q), x);
    big = x == x ? big : x;
    return a < 0.92f ? small : big;
}

/* ---- cores in f64 ---- */

/* Returns p and sets *scale so that exp(x) - 1 = (scale - 1) + scale * p, where p = exp(r) - 1. |x| <= 700. */
static inline double ln_exp_core(double x, double *scale) {
    double t = x * 1.4426950408889634 + 6755399441055744.0;
    double n = t - 6755399441055744.0;
    double r = x - n * 0.6931471805599453;
    double p = 0x1.730798de838a5p-19;
    p = p * r + 0x1.a173e487f99f5p-16;
    p = p * r + 0x1.a0196eb2b21f4p-13;
    p = p * r + 0x1.6c16368014a71p-10;
    p = p * r + 0x1.1111112f61969p-7;
    p = p * r + 0x1.555555811d384p-5;
    p = p * r + 0x1.555555554cbaap-3;
    p = p * r + 0x1.ffffffffef033p-2;
    *scale = ln_from_bits_d((ln_bits_d(t) + 1023u) << 52);
    return (p * r) * r + r;
}
/* The bounds keep 2^n a normal number; f32 overflows and underflows well within them. NaN is kept. */
static inline double ln_clamp_exp(double x) {
    x = x > 200.0 ? 200.0 : x;
    return x < -200.0 ? -200.0 : x;
}
static inline double ln_exp_d(double x) {
    double scale, p = ln_exp_core(ln_clamp_exp(x), &scale);
    return scale * p + scale;
}
static inline double ln_expm1_d(double x) {
    double scale, p = ln_exp_core(ln_clamp_exp(x), &scale);
    return scale * p + (scale - 1.0);
}

/* The logarithm of any double except denormals: 0 gives -inf, negative numbers give NaN. */
static inline double ln_log_d(double x) {
    uint64_t u = ln_bits_d(x);
    double e = ln_from_bits_d((u >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
    double m = ln_from_bits_d((u & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    bool high = m > 1.4142135623730951;
    e = high ? e + 1.0 : e;
    m = high ? m * 0.5 : m;
    double f = m - 1.0, s = f / (m + 1.0), v = s * s;
    double p = 0x1.5877740d27b49p-4;
    p = p * v + 0x1.732c6390d50dbp-4;
    p = p * v + 0x1.c72273cd6afe5p-4;
    p = p * v + 0x1.24924184f023bp-3;
    p = p * v + 0x1.999999a2727d0p-3;
    p = p * v + 0x1.5555555553a3ep-2;
    double w = s + s;
    double y = e * 0.6931471805599453 + (p * v * w + w);
    y = x > 0.0 ? y : (x == 0.0 ? -INFINITY : NAN);
    return x == INFINITY ? x : y;
}
/* log(1 + x), accurate even if 1 + x is rounded: the rounding error is added back as a quotient. */
static inline double ln_log1p_d(double x) {
    double u = 1.0 + x, lost = x - (u - 1.0);
    double y = ln_log_d(u) + lost / u;
    y = u == INFINITY ? u : y;
    return u == 0.0 ? -INFINITY : y;
}

static inline float ln_log_f(float x) { return (float)ln_log_d((double)x); }
static inline float ln_log1p_f(float x) { return x == 0.0f ? x : (float)ln_log1p_d((double)x); }
static inline float ln_expm1_f(float x) { return x == 0.0f ? x : (float)ln_expm1_d((double)x); }
static inline float ln_sinh_f(float x) {
    double m = ln_expm1_d((double)ln_abs_f(x));
    return ln_copysign_f((float)(0.5 * (m + m / (m + 1.0))), x);
}
static inline float ln_cosh_f(float x) {
    double e = ln_exp_d((double)ln_abs_f(x));
    return (float)(0.5 * (e + 1.0 / e));
}
static inline float ln_asinh_f(float x) {
    double a = (double)ln_abs_f(x), u = a * a;
    double y = ln_log1p_d(a + u / (1.0 + sqrt(u + 1.0)));
    return ln_copysign_f((float)(a == INFINITY ? a : y), x);
}
static inline float ln_acosh_f(float x) {
    double t = (double)x - 1.0;
    float y = (float)ln_log1p_d(t + sqrt(t * (t + 2.0)));
    return x < 1.0f ? NAN : y;
}
static inline float ln_atanh_f(float x) {
    double a = (double)ln_abs_f(x);
    return ln_copysign_f((float)(0.5 * ln_log1p_d((a + a) / (1.0 - a))), x);
}

/* a to the power b, with the special cases of pow in IEEE 754. */
static inline float ln_pow_f(float a, float b) {
    float magnitude = ln_abs_f(a), whole = ln_trunc_f(b), half = b * 0.5f;
    bool integer = whole == b, odd = integer && ln_trunc_f(half) != half;
    double product = (double)b * ln_log_d((double)magnitude);
    float y = (float)ln_exp_d(product);
    y = magnitude == 1.0f ? 1.0f : y; /* 1 to any power is 1, even if b is infinite */
    y = magnitude == 1.0f && b != b ? b : y;
    y = odd ? ln_copysign_f(y, a) : y;
    y = a < 0.0f && magnitude < INFINITY && !integer ? NAN : y;
    return a == 1.0f || b == 0.0f ? 1.0f : y;
}

/* ---- trigonometric functions ---- */

/* Reduces x to r, where x = n pi/2 + r, for |x| < 2^20. The product with the first 33 bits of pi/2 is exact. */
static inline double ln_reduce_trig(double x, uint64_t *quadrant) {
    double t = x * 0x1.45f306dc9c883p-1 + 6755399441055744.0;
    double n = t - 6755399441055744.0;
    *quadrant = ln_bits_d(t);
    return (x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
}
/* The same for larger |x|: multiplies the relevant bits of 2/pi by the 24 bits of x, modulo 4. */
static inline double ln_reduce_trig_large(float x, uint64_t *quadrant) {
    static const uint32_t two_over_pi[8] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                            0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    uint32_t u = ln_bits_f(x), m = (u & 0x7fffffu) | 0x800000u;
    int e = (int)(u >> 23 & 0xffu) - 150; /* |x| = m 2^e */
    if (e > 104 || e < -23) {             /* infinity, NaN, or a magnitude below the range of this function */
        *quadrant = 0;
        return (double)(x - x);
    }
    /* Takes 96 bits of 2/pi, beginning with bit e - 1. Bit 1 has the value 1/2; bits before it are 0. */
    int skip = e - 2, word = skip >= 0 ? skip / 32 : -1, shift = skip >= 0 ? skip % 32 : skip + 32;
    uint32_t w[4], v[3];
    for (int i = 0; i < 4; i++) w[i] = word + i < 0 || word + i > 7 ? 0 : two_over_pi[word + i];
    for (int i = 0; i < 3; i++) v[i] = shift == 0 ? w[i] : w[i] << shift | w[i + 1] >> (32 - shift);
    uint64_t high = (uint64_t)v[0] << 32 | v[1];
    uint64_t product = m * high + ((uint64_t)m * v[2] >> 32); /* top 2 bits: quadrant */
    uint64_t n = (product + ((uint64_t)1 << 61)) >> 62;
    double r = (double)(int64_t)(product - (n << 62)) * (0x1.921fb54442d18p+0 * 0x1p-62);
    bool negative = u >> 31 != 0;
    *quadrant = negative ? 0u - n : n;
    return negative ? -r : r;
}
static inline double ln_sin_core(double r) {
    double v = r * r, p = -0x1.a960f2e5885e3p-26;
    p = p * v + 0x1.71d76cf6c585dp-19;
    p = p * v + -0x1.a019f93d304cfp-13;
    p = p * v + 0x1.1111110c8db3fp-7;
    p = p * v + -0x1.55555555522dbp-3;
    return p * v * r + r;
}
static inline double ln_cos_core(double r) {
    double v = r * r, p = -0x1.23d2fb283e3eap-22;
    p = p * v + 0x1.a00ef65aac0b8p-16;
    p = p * v + -0x1.6c16b3ce68ad6p-10;
    p = p * v + 0x1.55555546ad7b6p-5;
    p = p * v + -0x1.ffffffffeb834p-2;
    return p * v + 1.0;
}
static inline float ln_sin_quadrant(double r, uint64_t q) {
    double s = ln_sin_core(r), c = ln_cos_core(r);
    double y = ln_from_bits_d(q << 63 >> 63 != 0 ? ln_bits_d(c) : ln_bits_d(s));
    return (float)ln_from_bits_d(ln_bits_d(y) ^ (q >> 1 << 63));
}
static inline float ln_tan_quadrant(double r, uint64_t q) {
    double s = ln_sin_core(r), c = ln_cos_core(r);
    bool odd = (q & 1u) != 0;
    double top = odd ? c : s, bottom = odd ? -s : c;
    return (float)(top / bottom);
}
/* The _small functions hold below LN_TRIG_LIMIT. Vectorized loops leave larger elements to the functions after them. */
#define LN_TRIG_LIMIT 1048576.0f
static inline float ln_sin_small(float x) {
    uint64_t q;
    double r = ln_reduce_trig((double)x, &q);
    float y = ln_sin_quadrant(r, q);
    return x == 0.0f ? x : y;
}
static inline float ln_cos_small(float x) {
    uint64_t q;
    double r = ln_reduce_trig((double)x, &q);
    return ln_sin_quadrant(r, q + 1);
}
static inline float ln_tan_small(float x) {
    uint64_t q;
    double r = ln_reduce_trig((double)x, &q);
    float y = ln_tan_quadrant(r, q);
    return x == 0.0f ? x : y;
}
static inline float ln_sin_f(float x) {
    uint64_t q;
    if (ln_abs_f(x) < LN_TRIG_LIMIT) return ln_sin_small(x);
    double r = ln_reduce_trig_large(x, &q);
    return ln_sin_quadrant(r, q);
}
static inline float ln_cos_f(float x) {
    uint64_t q;
    if (ln_abs_f(x) < LN_TRIG_LIMIT) return ln_cos_small(x);
    double r = ln_reduce_trig_large(x, &q);
    return ln_sin_quadrant(r, q + 1);
}
static inline float ln_tan_f(float x) {
    uint64_t q;
    if (ln_abs_f(x) < LN_TRIG_LIMIT) return ln_tan_small(x);
    double r = ln_reduce_trig_large(x, &q);
    return ln_tan_quadrant(r, q);
}

/* atan of a in [0, 1]. */
static inline double ln_atan_core(double a) {
    bool high = a > 0.41421356237309503;
    double x = high ? (a - 1.0) / (a + 1.0) : a, v = x * x;
    double p = 0x1.fa1c5e7ff46e5p-6;
    p = p * v + -0x1.e294590ed1d0bp-5;
    p = p * v + 0x1.36019a27caae6p-4;
    p = p * v + -0x1.73e1a8f1cd161p-4;
    p = p * v + 0x1.c715842422fc3p-4;
    p = p * v + -0x1.24922d6c35724p-3;
    p = p * v + 0x1.9999992e04183p-3;
    p = p * v + -0x1.555555550e019p-2;
    double y = p * v * x + x;
    return high ? y + 0.7853981633974483 : y;
}
static inline float ln_atan_f(float x) {
    double a = (double)ln_abs_f(x);
    bool big = a > 1.0;
    double y = ln_atan_core(big ? 1.0 / a : a);
    return ln_copysign_f((float)(big ? 1.5707963267948966 - y : y), x);
}
static inline float ln_atan2_f(float y, float x) {
    double a = (double)ln_abs_f(y), b = (double)ln_abs_f(x);
    bool steep = a > b;
    double low = steep ? b : a, high = steep ? a : b;
    double ratio = low / high;
    ratio = low == high ? (high == 0.0 ? 0.0 : 1.0) : ratio; /* 0/0 and inf/inf */
    double r = ln_atan_core(ratio);
    r = steep ? 1.5707963267948966 - r : r;
    r = ln_bits_f(x) >> 31 != 0 ? 3.141592653589793 - r : r;
    float z = ln_copysign_f((float)r, y);
    return y == y && x == x ? z : x + y;
}
/* asin of a in [0, 0.5] as a + correction. */
static inline double ln_asin_core(double a) {
    double v = a * a, p = 0x1.05d85923082f0p-5;
    p = p * v + -0x1.770e07c642446p-9;
    p = p * v + 0x1.314084e51a3c2p-6;
    p = p * v + 0x1.0df8c77aaf130p-6;
    p = p * v + 0x1.702b547b66aabp-6;
    p = p * v + 0x1.f1aafda8a4f3cp-6;
    p = p * v + 0x1.6db7643579372p-5;
    p = p * v + 0x1.333331ee91565p-4;
    p = p * v + 0x1.555555565d91bp-3;
    return p * v * a + a;
}
static inline double ln_asin_d(double a) {
    bool big = a > 0.5;
    double y = ln_asin_core(big ? sqrt(0.5 - 0.5 * a) : a);
    return big ? 1.5707963267948966 - (y + y) : y;
}
static inline float ln_asin_f(float x) { return ln_copysign_f((float)ln_asin_d((double)ln_abs_f(x)), x); }
static inline float ln_acos_f(float x) {
    double a = (double)ln_abs_f(x);
    bool big = a > 0.5;
    double y = ln_asin_core(big ? sqrt(0.5 - 0.5 * a) : a);
    double positive = big ? y + y : 1.5707963267948966 - y,
           negative = big ? 3.141592653589793 - (y + y) : 1.5707963267948966 + y;
    return (float)(x < 0.0f ? negative : positive);
}

/* ---- f64: uses the host's libm, for gradient checks and f64 models; the last bit may differ between systems ---- */

static inline double ln_sigmoid_d(double x) {
    double e = exp(-fabs(x)), s = 1.0 / (1.0 + e);
    return x < 0.0 ? e * s : s;
}

/* ---- integers: every overflow wraps, nothing is undefined ---- */

static inline int32_t ln_div_i(int32_t a, int32_t b) {
    return b == 0 ? 0 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}
static inline int64_t ln_div_l(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}
static inline int32_t ln_fmod_i(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static inline int64_t ln_fmod_l(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static inline int32_t ln_mod_i(int32_t a, int32_t b) {
    int32_t r = ln_fmod_i(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t ln_mod_l(int64_t a, int64_t b) {
    int64_t r = ln_fmod_l(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline float ln_mod_f(float a, float b) {
    float r = fmodf(a, b); /* fmodf is exact, so it gives the same bits on every system */
    r = r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
    return r == 0.0f ? ln_copysign_f(r, b) : r;
}
static inline double ln_mod_d(double a, double b) {
    double r = fmod(a, b);
    r = r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
    return r == 0.0 ? copysign(r, b) : r;
}
static inline int64_t ln_pow_l(int64_t a, int64_t b) {
    if (b < 0) /* the truncated quotient 1 / a^-b */
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t y = 1, base = (uint64_t)a;
    for (uint64_t n = (uint64_t)b; n != 0; n >>= 1) {
        if (n & 1) y *= base;
        base *= base;
    }
    return (int64_t)y;
}
static inline int32_t ln_pow_i(int32_t a, int32_t b) { return (int32_t)(uint32_t)(uint64_t)ln_pow_l(a, b); }

static inline int32_t ln_shl_i(int32_t a, int32_t b) {
    return (uint32_t)b > 31u ? 0 : (int32_t)((uint32_t)a << (b & 31));
}
static inline int32_t ln_sar_i(int32_t a, int32_t b) { return a >> ((uint32_t)b > 31u ? 31 : b); }
static inline int32_t ln_shr_i(int32_t a, int32_t b) {
    return (uint32_t)b > 31u ? 0 : (int32_t)((uint32_t)a >> (b & 31));
}
static inline int64_t ln_shl_l(int64_t a, int64_t b) {
    return (uint64_t)b > 63u ? 0 : (int64_t)((uint64_t)a << (b & 63));
}
static inline int64_t ln_sar_l(int64_t a, int64_t b) { return a >> ((uint64_t)b > 63u ? 63 : b); }
static inline int64_t ln_shr_l(int64_t a, int64_t b) {
    return (uint64_t)b > 63u ? 0 : (int64_t)((uint64_t)a >> (b & 63));
}

/* ---- casts between registers: float to integer truncates and saturates, NaN gives 0 ---- */

static inline int32_t ln_f_to_i(float x) {
    float c = x > -2147483648.0f ? x : -2147483648.0f; /* NaN becomes the minimum here, and 0 below */
    bool high = c >= 2147483648.0f;
    int32_t y = (int32_t)(high ? 0.0f : c);
    y = high ? INT32_MAX : y;
    return x == x ? y : 0;
}
static inline int32_t ln_d_to_i(double x) {
    double c = x > -2147483648.0 ? x : -2147483648.0;
    c = c < 2147483647.0 ? c : 2147483647.0;
    int32_t y = (int32_t)c;
    return x == x ? y : 0;
}
static inline int64_t ln_d_to_l(double x) {
    double c = x > -9223372036854775808.0 ? x : -9223372036854775808.0;
    bool high = c >= 9223372036854775808.0;
    int64_t y = (int64_t)(high ? 0.0 : c);
    y = high ? INT64_MAX : y;
    return x == x ? y : 0;
}
static inline int64_t ln_f_to_l(float x) {
    float c = x > -9223372036854775808.0f ? x : -9223372036854775808.0f;
    bool high = c >= 9223372036854775808.0f;
    int64_t y = (int64_t)(high ? 0.0f : c);
    y = high ? INT64_MAX : y;
    return x == x ? y : 0;
}

/* ---- stores with quantization ---- */

static inline int64_t ln_quantize_f(float x, float scale, int64_t zero, int64_t low, int64_t high) {
    float q = ln_round_f(x / scale), least = (float)(low - zero), most = (float)(high - zero);
    q = q > least ? q : least; /* NaN gives the lowest value */
    q = q < most ? q : most;
    return (int64_t)q + zero;
}

/* ---- fixed point, as TensorFlow Lite defines MultiplyByQuantizedMultiplier; right < 0 shifts left first ---- */

static inline int32_t ln_map_fixed_multiply(int32_t x, int32_t multiplier, int32_t right) {
    int32_t left = right < 0 ? -right : 0;
    right = right > 0 ? right : 0;
    int64_t product = (int64_t)(int32_t)((uint32_t)x << left) * multiplier;
    int64_t nudge = product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30);
    int32_t high = (int32_t)((product + nudge) / ((int64_t)1 << 31)); /* multiplier >= 0: INT32_MIN^2 cannot occur */
    int64_t mask = ((int64_t)1 << right) - 1, rest = high & mask;
    return (int32_t)(((int64_t)high >> right) + (rest > (mask >> 1) + (high < 0)));
}
static inline int32_t ln_map_fixed_multiply_single(int32_t x, int32_t multiplier, int32_t right) {
    int total = 31 + right;
    int64_t y = ((int64_t)x * multiplier + ((int64_t)1 << (total - 1))) >> total;
    return y > INT32_MAX ? INT32_MAX : y < INT32_MIN ? INT32_MIN : (int32_t)y;
}

#endif
