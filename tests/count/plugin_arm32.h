/* plugin_arm32.h - how plugin.c classifies the instructions of 32-bit ARM. They are expected in Thumb, as compilers for
 * ARMv7 make them by default; instructions in the older encoding, which a few functions of the C library have, only
 * count as instructions. */
#ifndef LN_TESTS_COUNT_PLUGIN_ARM32_H
#define LN_TESTS_COUNT_PLUGIN_ARM32_H

/* movw ip, #0x51A3: nothing depends on ip at a mark. */
#define MARK_ARM32 0x1CA3F245u

/* Arithmetic of NEON in its encoding for ARM mode (Arm ARM for ARMv7, A7.4). */
static enum class arithmetic_arm32(uint32_t w) {
    const unsigned op = w >> 8 & 15, scalar = w >> 6 & 1;
    if ((w & 0xFF800E10) == 0xF2000C10) return FMA;  /* VFMA, VMLA and VMLS of vectors: opcodes 12 and 13 */
    if ((w & 0xFE800F00) == 0xF2000900) return IMAC; /* VMLA and VMUL of integers */
    if ((w & 0xFE800010) == 0xF2800000 && (w >> 20 & 3) != 3){
        if (scalar) return op == 1 || op == 5       ? FMA
        : op == 0 || op == 2 || op == 8 || op == 10 ? IMAC
                                                    : VOTHER;
        return op == 8 || op == 12 ? IMAC : VOTHER; /* VMLAL, VMULL */
    }
return VOTHER;
}

/* Loads and stores of NEON and of the floating-point unit. */
static void access_arm32(uint32_t w, uint32_t *c) {
    static const unsigned registers[16] = {4, 4, 4, 4, 3, 3, 3, 1, 2, 2, 2};
    const int elements = (w & 0xFF000000) == 0xF4000000, load = w >> (elements ? 21 : 20) & 1;
    unsigned bytes = (w & 0xFF) * 4; /* VLDM */
    if (elements)
        bytes = w >> 23 & 1 ? 1u << ((w >> 10 & 3) == 3 ? w >> 6 & 3 : w >> 10 & 3) : 8 * registers[w >> 8 & 15];
    else if ((w & 0x01200000) == 0x01000000) /* VLDR */
        bytes = w >> 8 & 1 ? 8 : 4;
    count(c, load ? VLOAD : VSTORE, load ? LOADED : STORED, bytes);
}

/* Instructions of 16 bits. */
static void classify_thumb16(unsigned h, uint32_t *c) {
    static const struct {
        unsigned mask, bits, load, bytes;
    } accesses[] = {
        {0xF800, 0x4800, 1, 4}, {0xFE00, 0x5000, 0, 4}, {0xFE00, 0x5200, 0, 2}, {0xFE00, 0x5400, 0, 1},
        {0xFE00, 0x5800, 1, 4}, {0xFE00, 0x5A00, 1, 2}, {0xFE00, 0x5E00, 1, 2}, {0xFC00, 0x5400, 1, 1},
        {0xFC00, 0x5C00, 1, 1}, {0xF800, 0x6000, 0, 4}, {0xF800, 0x6800, 1, 4}, {0xF800, 0x7000, 0, 1},
        {0xF800, 0x7800, 1, 1}, {0xF800, 0x8000, 0, 2}, {0xF800, 0x8800, 1, 2}, {0xF800, 0x9000, 0, 4},
        {0xF800, 0x9800, 1, 4},
    };
    if ((h & 0xF000) == 0xD000 || (h & 0xF800) == 0xE000 || (h & 0xFF00) == 0x4700 || (h & 0xF500) == 0xB100)
        c[BRANCH]++;
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++)
        if ((h & accesses[i].mask) == accesses[i].bits) {
            count(c, accesses[i].load ? LOAD : STORE, accesses[i].load ? LOADED : STORED, accesses[i].bytes);
            return;
        }
    if ((h & 0xF000) == 0xC000 || (h & 0xF600) == 0xB400) { /* LDM, STM, PUSH, POP */
        const int load = h >> 11 & 1;
        count(c, load ? LOAD : STORE, load ? LOADED : STORED, 4 * (unsigned)__builtin_popcount(h & 0xFF));
    }
}

static void classify_arm32(uint32_t w, size_t size, uint32_t *c) {
    c[ALL]++;
    if (size == 2) {
        classify_thumb16(w & 0xFFFF, c);
        return;
    }
    const uint32_t t = w << 16 | w >> 16; /* the first half is the high one */
    if (t < 0xE8000000) return;           /* not in Thumb */
    if ((t & 0xEF000000) == 0xEF000000) {
        c[arithmetic_arm32((t & 0x00FFFFFF) | 0xF2000000 | (t >> 28 & 1) << 24)]++;
    } else if ((t & 0xFF100000) == 0xF9000000) {
        access_arm32((t & 0x00FFFFFF) | 0xF4000000, c);
    } else if ((t & 0xFE000E00) == 0xEC000A00 && (t & 0x01E00000) != 0x00400000) {
        access_arm32(t, c);
    } else if ((t & 0xFC000E00) == 0xEC000A00) { /* the floating-point unit; VMLA and VFMA */
        c[(t & 0xFFB00E50) == 0xEE000A00 || (t & 0xFFB00E50) == 0xEEA00A00 ? FMA : VOTHER]++;
    } else if ((t & 0xF8008000) == 0xF0008000) {
        c[BRANCH]++;
    } else if ((t & 0xFE000000) == 0xE8000000) { /* several registers, pairs, exclusive accesses */
        const int load = t >> 20 & 1, many = !(t >> 22 & 1);
        count(c, load ? LOAD : STORE, load ? LOADED : STORED, many ? 4 * (unsigned)__builtin_popcount(t & 0xFFFF) : 8);
    } else if ((t & 0xFE000000) == 0xF8000000) {
        const int load = t >> 20 & 1;
        count(c, load ? LOAD : STORE, load ? LOADED : STORED, 1u << (t >> 21 & 3));
    }
}

#endif
