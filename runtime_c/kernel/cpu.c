/* cpu.c - the instruction sets that this machine and its operating system support, and their names.
 * Detection takes a few instructions and keeps no state; callers repeat it for every plan. */
#include "kernel/kernel.h"
#include "kernel/parts.h"
#include "base/platform.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

static const char *const isa_names[LN_ISA_COUNT] = {
    "scalar",
#if defined(__x86_64__) || defined(_M_X64)
    "sse2",   "avx2", "avx512", "avx512vnni",
#elif defined(__aarch64__)
    "neon",
    "dotprod",
    "i8mm",
#elif defined(__ARM_NEON)
    "neon",
#endif
};

#if defined(__x86_64__)
/* Register state that the operating system saves (Intel SDM volume 1, 13.3): AVX needs XCR0 bits 1 and 2, AVX-512 also
 * bits 5 to 7. */
static unsigned saved_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int machine_isa(void) {
    const unsigned leaf1 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;  /* FMA, OSXSAVE, AVX, F16C */
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    unsigned a, b, c, d, state;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1) return LN_ISA_SSE2;
    state = saved_state();
    if ((state & 0x6u) != 0x6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 5)) return LN_ISA_SSE2;
    if ((state & 0xe0u) != 0xe0u || (b & avx512) != avx512) return LN_ISA_AVX2;
    return c & 1u << 11 ? LN_ISA_AVX512VNNI : LN_ISA_AVX512;
}
#elif defined(__aarch64__)
static int machine_isa(void) {
    unsigned features = ln_arm_features();
    if (!(features & LN_ARM_DOTPROD) || !(features & LN_ARM_FP16)) return LN_ISA_NEON;
    return features & LN_ARM_I8MM ? LN_ISA_I8MM : LN_ISA_DOTPROD;
}
#else
static int machine_isa(void) { return LN_ISA_COUNT - 1; }
#endif

/* The levels that this build has kernels for, as bits. */
enum {
#if defined(__x86_64__) || defined(_M_X64)
    BUILT = 1 << LN_ISA_SSE2 LN_IF_avx2(| 1 << LN_ISA_AVX2) LN_IF_avx512(| 1 << LN_ISA_AVX512)
        LN_IF_avx512vnni(| 1 << LN_ISA_AVX512VNNI)
#elif defined(__aarch64__)
    BUILT = 1 << LN_ISA_NEON LN_IF_dotprod(| 1 << LN_ISA_DOTPROD) LN_IF_i8mm(| 1 << LN_ISA_I8MM)
#else
    BUILT = 1 << (LN_ISA_COUNT - 1)
#endif
};

int ln_isa_detect(void) {
    int isa = machine_isa();
    while (isa > LN_ISA_SCALAR && !(BUILT >> isa & 1)) isa--;
    return isa;
}

const char *ln_isa_text(int isa) { return isa >= 0 && isa < LN_ISA_COUNT ? isa_names[isa] : NULL; }

int ln_isa_find(const char *name) {
    for (int isa = 0; name && isa < LN_ISA_COUNT; isa++)
        if (!strcmp(name, isa_names[isa])) return isa;
    return -1;
}

const char *linnet_isa_name(int i) { return i <= ln_isa_detect() ? ln_isa_text(i) : NULL; }
