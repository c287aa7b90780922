/* machine.c - the built-in rates of processors (kernel/machine.h). The planner uses them if no tuning file gives the
 * rates of this machine, which `linnet tune --machine` measures. */
#include "kernel/machine.h"

#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Columns: f32, i8, i16, map, move. */
#if defined(__x86_64__) || defined(_M_X64)
/* Measured by `linnet tune --machine` on an AMD EPYC of 3.4 GHz (Zen 3), which has no AVX-512: the rows of AVX-512 are
 * computed from the width of its vectors. `thread` was 0.3 to 0.9 on two virtual processors of a machine that other
 * users shared. */
static const struct ln_machine machines[] = {
    {{{1.1f, 0.28f, 0.3f, 0.22f, 0.1f},
      {14, 34, 27, 6.6f, 1.6f},
      {45, 103, 81, 14, 1.6f},
      {75, 150, 150, 22, 1.6f},
      {75, 300, 150, 22, 1.6f}},
     105,
     35,
     20,
     70,
     1200,
     0.6f,
     LN_SHARED_CACHE},
};
#elif defined(__aarch64__)
/* Computed, not measured: the throughput of instructions in Arm's software optimization guides, times the clock of
 * usual boards, times 0.7, which is the share of the peak that linnet's products reach. Products of 16 bits multiply
 * four pairs per instruction as those of f32 do, on one of the two units of a Cortex-A76. The dot product of
 * their bytes multiplies eight pairs, on both units, if the weights have 8 bits. Converting an f16 value twice
 * takes about as long as writing and reading two more bytes beyond all caches, so `widest` includes the first layers
 * of usual networks, which are larger than the caches, but not values that would need much memory. */
enum { LN_KEPT_BYTES = 8 << 20 };
static const struct ln_machine machines[] = {
    /* Cortex-A53, A35 and A55, in order, 1.4 GHz */
    {{{0.1f, 0.1f, 0.1f, 0.05f, 0.1f},
      {3.5f, 5, 3.5f, 1.2f, 0.3f},
      {3.5f, 18, 8.5f, 1.2f, 0.3f},
      {3.5f, 18, 8.5f, 1.2f, 0.3f},
      {0}},
     6,
     5,
     2.5f,
     250,
     4000,
     0.9f,
     LN_KEPT_BYTES},
    /* Cortex-A72, 1.5 GHz */
    {{{0.25f, 0.2f, 0.2f, 0.12f, 0.2f}, {6, 10, 6, 2.5f, 0.6f}, {6, 40, 19, 2.5f, 0.6f}, {6, 40, 19, 2.5f, 0.6f}, {0}},
     12,
     8,
     3.5f,
     150,
     3000,
     0.9f,
     LN_KEPT_BYTES},
    /* Cortex-A76 and later, 2.4 GHz */
    {{{0.4f, 0.3f, 0.3f, 0.2f, 0.3f}, {26, 40, 13, 7, 1}, {26, 100, 48, 7, 1}, {26, 200, 48, 7, 1}, {0}},
     30,
     20,
     10,
     80,
     2000,
     0.9f,
     LN_KEPT_BYTES},
};
#elif defined(__arm__) && defined(__ARM_NEON)
/* Computed in the same way, for a Cortex-A53 of 1.2 GHz in 32-bit mode. */
static const struct ln_machine machines[] = {
    {{{0.1f, 0.1f, 0.1f, 0.05f, 0.1f}, {2.5f, 3.5f, 2.5f, 0.8f, 0.25f}}, 5, 4, 2, 300, 4500, 0.9f, 0},
};
#else
static const struct ln_machine machines[] = {
    {{{0.25f, 0.2f, 0.2f, 0.12f, 0.2f}}, 8, 6, 3, 200, 4000, 0.9f, 0},
};
#endif

/* Recognizes Cortex-A53, A35 and A55 by the part number in the main id register, which Linux lets programs read. */
bool ln_in_order(void) {
#if defined(__aarch64__) && defined(__linux__) && defined(HWCAP_CPUID)
    if (!(getauxval(AT_HWCAP) & HWCAP_CPUID)) return false;
    uint64_t id;
    __asm__("mrs %0, midr_el1" : "=r"(id));
    const unsigned part = (unsigned)(id >> 4) & 0xFFF;
    return id >> 24 == 0x41 && (part == 0xD03 || part == 0xD04 || part == 0xD05);
#else
    return false;
#endif
}

const struct ln_machine *ln_machine_of(ln_features features) {
    (void)features;
#if defined(__aarch64__)
    return &machines[ln_in_order() ? 0 : features & LN_DOTPROD ? 2 : 1];
#else
    return &machines[0];
#endif
}

static const char rate_names[LN_RATES][5] = {"f32", "i8", "i16", "map", "move"};

static bool is(const char *name, size_t length, const char *word) {
    return strlen(word) == length && memcmp(name, word, length) == 0;
}

bool ln_machine_set(struct ln_machine *machine, const char *name, size_t length, double value) {
    static const char others[6][7] = {"cache", "shared", "memory", "step", "fork", "thread"};
    float *const fields[6] = {&machine->cache, &machine->shared, &machine->memory,
                              &machine->step,  &machine->fork,   &machine->thread};
    for (int i = 0; i < 6; ++i)
        if (is(name, length, others[i])) return *fields[i] = (float)value, true;
    const char *space = memchr(name, ' ', length);
    const size_t first = space != NULL ? (size_t)(space - name) : length;
    for (int row = 0; space != NULL && row < LN_RATE_ROWS && ln_isa_sets[row].name[0] != 0; ++row)
        for (int i = 0; is(name, first, ln_isa_sets[row].name) && i < LN_RATES; ++i)
            if (is(space + 1, length - first - 1, rate_names[i])) return machine->rates[row][i] = (float)value, true;
    return false;
}
