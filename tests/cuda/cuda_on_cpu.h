/* cuda_on_cpu.h - lets the texts of CUDA kernels compile as C++17 and run on the CPU, for tests. libnvrtc.cc puts it in
 * front of each text, and defines LG_CPU_FIBERS: whether threads of a block wait for each other (cpu_fibers.h). */
#ifndef LG_CUDA_ON_CPU_H
#define LG_CUDA_ON_CPU_H

#include "image.h"

/* ---- words ------------------------------------------------------------------------------------------------------- */

#define __global__ __attribute__((used, visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static __attribute__((section("lg_shared")))
#define __constant__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct lg_cpu_dim {
    unsigned x, y, z;
};
static lg_cpu_dim threadIdx, blockIdx, blockDim, gridDim;
static void *lg_cpu_dynamic; /* shared memory; libnvrtc.cc turns `extern __shared__ T name[];` into a pointer to it */
enum { warpSize = 32 };

#define LG_CPU_VECTOR(T, name, align)                                                                                  \
    struct alignas(sizeof(T) * 2) name##2 { T x, y; };                                                                 \
    struct name##3 { T x, y, z; };                                                                                     \
    struct alignas(align) name##4 { T x, y, z, w; };                                                                   \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                  \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                          \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
LG_CPU_VECTOR(float, float, 16)
LG_CPU_VECTOR(double, double, 16)
LG_CPU_VECTOR(int, int, 16)
LG_CPU_VECTOR(unsigned, uint, 16)
LG_CPU_VECTOR(short, short, 8)
LG_CPU_VECTOR(unsigned short, ushort, 8)
LG_CPU_VECTOR(signed char, char, 4)
LG_CPU_VECTOR(unsigned char, uchar, 4)
LG_CPU_VECTOR(long long, longlong, 16)
LG_CPU_VECTOR(unsigned long long, ulonglong, 16)

/* ---- bits and conversions ---------------------------------------------------------------------------------------- */

template <class To, class From> static inline To lg_cpu_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    __builtin_memcpy(&to, &value, sizeof to);
    return to;
}
static inline float __int_as_float(int v) { return lg_cpu_bits<float>(v); }
static inline float __uint_as_float(unsigned v) { return lg_cpu_bits<float>(v); }
static inline int __float_as_int(float v) { return lg_cpu_bits<int>(v); }
static inline unsigned __float_as_uint(float v) { return lg_cpu_bits<unsigned>(v); }
static inline long long __double_as_longlong(double v) { return lg_cpu_bits<long long>(v); }
static inline double __longlong_as_double(long long v) { return lg_cpu_bits<double>(v); }

/* f16, as the instructions cvt.f32.f16 and cvt.rn.f16.f32 convert: libnvrtc.cc calls these instead. */
static inline float lg_cpu_f16_to_f32(unsigned short h) {
    const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023u;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}
static inline unsigned short lg_cpu_f32_to_f16(float f) {
    const unsigned bits = __float_as_uint(f), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (unsigned short)0x7fff; /* NaN */
    if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    if (size < 0x38800000u) { /* below the normal numbers: steps of 2^-24; the sum rounds to even */
        const float scaled = __uint_as_float(size) + 0.5f;
        return (unsigned short)(sign | ((__float_as_uint(scaled) - 0x3f000000u) & 0xffffu));
    }
    return (unsigned short)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13));
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

extern "C" {
/* clang-format off */
#define LG_CPU_MATH(F)                                                                                                 \
    F(exp) F(exp2) F(expm1) F(log) F(log2) F(log1p) F(log10) F(sqrt) F(sin) F(cos) F(tan) F(tanh) F(sinh) F(cosh)      \
    F(asin) F(acos) F(atan) F(asinh) F(acosh) F(atanh) F(erf) F(erfc) F(cbrt) F(floor) F(ceil) F(trunc) F(round)       \
    F(rint) F(nearbyint) F(fabs) F(lgamma) F(tgamma)
#define LG_CPU_MATH_2(F) F(pow) F(fmod) F(atan2) F(fmin) F(fmax) F(copysign) F(hypot) F(remainder)
#define LG_CPU_DECLARE(name) double name(double); float name##f(float);
#define LG_CPU_DECLARE_2(name) double name(double, double); float name##f(float, float);
/* clang-format on */
LG_CPU_MATH(LG_CPU_DECLARE)
LG_CPU_MATH_2(LG_CPU_DECLARE_2)
double fma(double, double, double);
float fmaf(float, float, float);
int abs(int);
}
#define LG_CPU_OVERLOAD(name)                                                                                          \
    static inline float name(float x) { return name##f(x); }
#define LG_CPU_OVERLOAD_2(name)                                                                                        \
    static inline float name(float x, float y) { return name##f(x, y); }
LG_CPU_MATH(LG_CPU_OVERLOAD)
LG_CPU_MATH_2(LG_CPU_OVERLOAD_2)
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline int __float2int_rn(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x < -2147483648.0f ? -2147483647 - 1 : (int)rintf(x);
}
static inline float __int2float_rn(int x) { return (float)x; }
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz((unsigned)v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; ++i) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
    return c;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 255u) << 8 * i;
    return out;
}
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }

/* Kernels of a launch run on one thread of the system, and no two launches at once. */
template <class T, class U> static inline T atomicAdd(T *at, U v) {
    const T old = *at;
    *at = (T)(old + (T)v);
    return old;
}
template <class T, class U> static inline T atomicMax(T *at, U v) {
    const T old = *at;
    if ((T)v > old) *at = (T)v;
    return old;
}
template <class T, class U> static inline T atomicMin(T *at, U v) {
    const T old = *at;
    if ((T)v < old) *at = (T)v;
    return old;
}
template <class T, class U> static inline T atomicExch(T *at, U v) {
    const T old = *at;
    *at = (T)v;
    return old;
}
template <class T, class U, class V> static inline T atomicCAS(T *at, U expected, V v) {
    const T old = *at;
    if (old == (T)expected) *at = (T)v;
    return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

extern "C" char __start_lg_shared[] __attribute__((weak, visibility("hidden"))),
    __stop_lg_shared[] __attribute__((weak, visibility("hidden")));

static inline unsigned lg_cpu_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Writes the order of n threads into `out`. */
static inline void lg_cpu_arrange(unsigned short *out, int n, unsigned order, unsigned *state) {
    for (int i = 0; i < n; ++i) out[i] = (unsigned short)(order == 1 ? n - 1 - i : i);
    for (int i = n - 1; order > 1 && i > 0; --i) {
        const int k = (int)(lg_cpu_random(state) % (unsigned)(i + 1));
        const unsigned short kept = out[i];
        out[i] = out[k], out[k] = kept;
    }
}

typedef void lg_cpu_body(void **parameters);
/* Runs the threads of the block blockIdx. */
static int lg_cpu_block(const lg_cpu_launch *launch, lg_cpu_body *body, void **parameters, unsigned *state);

static inline lg_cpu_dim lg_cpu_place(unsigned long long i, const unsigned *sizes) {
    return {(unsigned)(i % sizes[0]), (unsigned)(i / sizes[0] % sizes[1]), (unsigned)(i / sizes[0] / sizes[1])};
}

/* Runs the blocks one after another. Shared memory has NaN or -1 everywhere when a block begins. */
static int lg_cpu_run(const lg_cpu_launch *launch, lg_cpu_body *body, void **parameters) {
    const unsigned long long blocks = (unsigned long long)launch->grid[0] * launch->grid[1] * launch->grid[2];
    unsigned state = launch->order;
    gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
    blockDim = {launch->block[0], launch->block[1], launch->block[2]};
    lg_cpu_dynamic = launch->shared;
    const unsigned long long first = launch->order > 1 ? lg_cpu_random(&state) % blocks : 0;
    for (unsigned long long i = 0; i < blocks; ++i) {
        blockIdx = lg_cpu_place(launch->order == 1 ? blocks - 1 - i : (i + first) % blocks, launch->grid);
        if (__start_lg_shared != nullptr)
            __builtin_memset(__start_lg_shared, 255, (size_t)(__stop_lg_shared - __start_lg_shared));
        if (launch->shared_bytes > 0) __builtin_memset(launch->shared, 255, launch->shared_bytes);
        if (lg_cpu_block(launch, body, parameters, &state) != 0) return 1;
    }
    return 0;
}

#if LG_CPU_FIBERS
#include "cpu_fibers.h"
#else
static int lg_cpu_block(const lg_cpu_launch *launch, lg_cpu_body *body, void **parameters, unsigned *state) {
    const int n = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    unsigned short order[lg_cpu_most_threads];
    if (launch->order != 0) lg_cpu_arrange(order, n, launch->order, state);
    for (int i = 0; i < n; ++i) {
        threadIdx = lg_cpu_place((unsigned)(launch->order != 0 ? order[i] : i), launch->block);
        body(parameters);
    }
    return 0;
}
#endif

/* ---- the table of kernels, which libnvrtc.cc ends ---------------------------------------------------------------- */

template <class T> struct lg_cpu_bare {
    typedef T type;
};
template <class T> struct lg_cpu_bare<const T> {
    typedef T type;
};
template <class T> struct lg_cpu_bare<T &> {
    typedef typename lg_cpu_bare<T>::type type;
};
template <int... I> struct lg_cpu_numbers {};
template <int N, int... I> struct lg_cpu_count : lg_cpu_count<N - 1, N - 1, I...> {};
template <int... I> struct lg_cpu_count<0, I...> {
    typedef lg_cpu_numbers<I...> type;
};
template <class F> struct lg_cpu_of;
template <class... A> struct lg_cpu_of<void (*)(A...)> {
    static constexpr int count = sizeof...(A);
    static inline const unsigned sizes[count + 1] = {(unsigned)sizeof(A)..., 0};
    template <void (*kernel)(A...), int... I> static void call(void **p, lg_cpu_numbers<I...>) {
        kernel(*(typename lg_cpu_bare<A>::type *)p[I]...);
    }
    template <void (*kernel)(A...)> static void body(void **p) {
        call<kernel>(p, typename lg_cpu_count<count>::type());
    }
    template <void (*kernel)(A...)> static int run(const lg_cpu_launch *launch, void **p) {
        return lg_cpu_run(launch, body<kernel>, p);
    }
};
#define LG_CPU_KERNEL(name)                                                                                            \
    {#name, lg_cpu_of<decltype(&name)>::count, lg_cpu_of<decltype(&name)>::sizes,                                      \
     lg_cpu_of<decltype(&name)>::run<name>},

#endif
