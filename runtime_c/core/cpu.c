/* cpu.c - which instruction sets this machine and its operating system run, and their names.
 * Detection is a handful of instructions and keeps no state: callers do it once per plan. */
#include "core/kernel.h"
#include "core/platform.h"

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

int ln_isa_detect(void) {
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
int ln_isa_detect(void) {
    unsigned features = ln_arm_features();
    if (!(features & LN_ARM_DOTPROD) || !(features & LN_ARM_FP16)) return LN_ISA_NEON;
    return features & LN_ARM_I8MM ? LN_ISA_I8MM : LN_ISA_DOTPROD;
}
#else
int ln_isa_detect(void) { return LN_ISA_COUNT - 1; }
#endif

const char *ln_isa_text(int isa) { return isa >= 0 && isa < LN_ISA_COUNT ? isa_names[isa] : NULL; }

int ln_isa_find(const char *name) {
    for (int isa = 0; name && isa < LN_ISA_COUNT; isa++)
        if (!strcmp(name, isa_names[isa])) return isa;
    return -1;
}
