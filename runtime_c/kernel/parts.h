/* parts.h - the parts of the library that this build contains. CMake defines LN_WITHOUT_... for each part that it
 * leaves out (LINNET_ISAS, LINNET_TRAINING, LINNET_CHECKPOINTS, LINNET_TUNING, LINNET_DEVICES, LINNET_USER_OPS;
 * docs/building.md); without these definitions the build contains everything. */
#ifndef LN_PARTS_H
#define LN_PARTS_H

/* LN_IF_avx2(text) is the text in a build that contains the kernels for AVX2, and nothing in other builds. */
#define LN_IF_sse2(...) __VA_ARGS__ /* every build contains the baselines */
#define LN_IF_neon(...) __VA_ARGS__
#define LN_IF_neon32(...) __VA_ARGS__
#ifdef LN_WITHOUT_AVX2
#define LN_IF_avx2(...)
#else
#define LN_IF_avx2(...) __VA_ARGS__
#endif
#ifdef LN_WITHOUT_AVX512
#define LN_IF_avx512(...)
#else
#define LN_IF_avx512(...) __VA_ARGS__
#endif
#ifdef LN_WITHOUT_AVX512VNNI
#define LN_IF_avx512vnni(...)
#else
#define LN_IF_avx512vnni(...) __VA_ARGS__
#endif
#ifdef LN_WITHOUT_FP16
#define LN_IF_fp16(...)
#else
#define LN_IF_fp16(...) __VA_ARGS__
#endif
#ifdef LN_WITHOUT_DOTPROD
#define LN_IF_dotprod(...)
#else
#define LN_IF_dotprod(...) __VA_ARGS__
#endif
#ifdef LN_WITHOUT_I8MM
#define LN_IF_i8mm(...)
#else
#define LN_IF_i8mm(...) __VA_ARGS__
#endif
#ifdef LN_WITHOUT_BF16
#define LN_IF_bf16(...)
#else
#define LN_IF_bf16(...) __VA_ARGS__
#endif

/* 0 if the build leaves the part out. Code tests these constants with `if`, not `#if`, so that it compiles in every
   build; the compiler and the linker then drop what is never called. */
#ifdef LN_WITHOUT_DEVICES
#define LN_HAS_DEVICES 0
#else
#define LN_HAS_DEVICES 1
#endif
#ifdef LN_WITHOUT_USER_OPS
#define LN_HAS_USER_OPS 0
#else
#define LN_HAS_USER_OPS 1
#endif

#endif
