/* cpu.c - the instruction sets that this machine and its operating system support, and their names.
 * Detection takes a few instructions and keeps no state; callers repeat it for every plan. */
#include "kernel/cpu.h"

#include "base/platform.h"
#include "base/platform_machine.h"
#include "kernel/kernel.h"
#include "kernel/parts.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

/* Names whose kernels this build lacks are accepted too, because a name is only a limit. */
const ln_isa_set ln_isa_sets[] = {
    {"scalar", 0, LN_ISA_SCALAR},
#if defined(__x86_64__) || defined(_M_X64)
    {"sse2", LN_SSE2, LN_ISA_sse2},
    {"avx2", LN_AVX2, LN_ISA_avx2},
    {"avx512", LN_AVX512, LN_ISA_avx512},
    {"avx512vnni", LN_AVX512VNNI, LN_ISA_avx512vnni},
#elif defined(__aarch64__)
    {"neon", LN_NEON, LN_ISA_neon},
    {"dotprod", LN_DOTPROD, LN_ISA_dotprod | LN_FP16},
    {"i8mm", LN_I8MM, LN_ISA_i8mm | LN_FP16 | LN_BF16},
#elif defined(__arm__) && defined(__ARM_NEON)
    {"neon32", LN_NEON32, LN_ISA_neon32},
#endif
    {"", 0, 0},
};

/* The features that this build has kernels for. */
enum {
#if defined(__x86_64__) || defined(_M_X64)
    BUILT = LN_SSE2 LN_IF_avx2(| LN_AVX2) LN_IF_avx512(| LN_AVX512) LN_IF_avx512vnni(| LN_AVX512VNNI)
#elif defined(__aarch64__)
    BUILT = LN_NEON LN_IF_dotprod(| LN_DOTPROD) LN_IF_i8mm(| LN_I8MM)
#elif defined(__arm__) && defined(__ARM_NEON)
    BUILT = LN_NEON32
#else
    BUILT = 0
#endif
};

#if defined(__x86_64__)
ln_features ln_x86_features(unsigned leaf1, unsigned leaf7b, unsigned leaf7c, unsigned part1, unsigned state) {
    const unsigned avx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;    /* FMA, OSXSAVE, AVX, F16C */
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    ln_features f = LN_SSE2;
    /* Register state that the operating system saves (Intel SDM volume 1, 13.3): AVX needs XCR0 bits 1 and 2, AVX-512
     * also bits 5 to 7. */
    if ((leaf1 & avx) != avx || (state & 0x6u) != 0x6u || !(leaf7b & 1u << 5)) return f;
    f |= LN_AVX2 | (part1 & 1u << 4 ? LN_AVXVNNI : 0u);
    if ((state & 0xe0u) != 0xe0u || (leaf7b & avx512) != avx512) return f;
    return f | LN_AVX512 | (leaf7c & 1u << 11 ? LN_AVX512VNNI : 0u) | (part1 & 1u << 5 ? LN_AVX512BF16 : 0u);
}

ln_features ln_detect_features(void) {
    unsigned a, b, c, d, leaf1, leaf7b, leaf7c, state, high, part1 = 0;
    if (!__get_cpuid(1, &a, &b, &leaf1, &d) || !(leaf1 & 1u << 27) ||
        !__get_cpuid_count(7, 0, &a, &leaf7b, &leaf7c, &d))
        return LN_SSE2;
    if (a >= 1) __get_cpuid_count(7, 1, &part1, &b, &c, &d);
    __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    return ln_x86_features(leaf1, leaf7b, leaf7c, part1, state);
}
#elif defined(__aarch64__)
ln_features ln_detect_features(void) {
    const unsigned has = ln_arm_features();
    return LN_NEON | (has & LN_ARM_FP16 ? LN_FP16 : 0u) | (has & LN_ARM_DOTPROD ? LN_DOTPROD : 0u) |
           (has & LN_ARM_I8MM ? LN_I8MM : 0u) | (has & LN_ARM_BF16 ? LN_BF16 : 0u) | (has & LN_ARM_SVE ? LN_SVE : 0u);
}
#elif defined(_M_X64) || (defined(__arm__) && defined(__ARM_NEON))
ln_features ln_detect_features(void) { return 1; /* the baseline */ }
#else
ln_features ln_detect_features(void) { return 0; }
#endif

const ln_isa_set *ln_isa_find(const char *name) {
    for (const ln_isa_set *s = ln_isa_sets; name != NULL && s->name[0] != 0; ++s)
        if (!strcmp(name, s->name)) return s;
    return NULL;
}

const ln_isa_set *ln_isa_of(ln_features features) {
    const ln_isa_set *found = ln_isa_sets;
    for (const ln_isa_set *s = ln_isa_sets; s->name[0] != 0; ++s)
        if ((s->mark & ~(features & (ln_features)BUILT)) == 0) found = s;
    return found;
}

const char *linnet_isa_name(int i) {
    const ln_features features = ln_detect_features() & (ln_features)BUILT;
    for (const ln_isa_set *s = ln_isa_sets; s->name[0] != 0; ++s)
        if ((s->mark & ~features) == 0 && i-- == 0) return s->name;
    return NULL;
}
