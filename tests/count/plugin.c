/* plugin.c - a plugin of qemu-user that counts what a program for AArch64 or 32-bit ARM executes, by class of
 * instruction, and the lines that it misses in a data cache. `movz xzr, #0x51A3` in the program, or `movw ip, #0x51A3`,
 * is a mark, at which the counts are written out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What this plugin needs of qemu's plugin interface, version 1. Debian has no package with the header. */
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct qemu_info_t { /* its first field */
    const char *target_name;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void on_insn(unsigned cpu, void *data);
typedef void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, void (*f)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int op, void *counter, uint64_t add);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, on_insn *f, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, on_access *f, int flags, int rw, void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*f)(qemu_plugin_id_t, void *), void *data);

#define SHOWN __attribute__((visibility("default")))
SHOWN int qemu_plugin_version = 1;

#define MARK (0xD2800000u | 0x51A3u << 5 | 31)

/* The order is that of CLASSES in counts.py. */
enum class { ALL, FMA, IMAC, DOT, MMLA, FP16, VLOAD, VSTORE, LOAD, STORE, BRANCH, VOTHER, LOADED, STORED, COUNTS };

/* Arithmetic on vectors, by the bits that tell it from others (Arm ARM, C4.1.96). Scalar FMADD counts as an FMA. */
static const struct {
    uint32_t mask, bits;
    enum class class;
} arithmetic[] = {
    {0xBFA0FC00, 0x0E20CC00, FMA},  /* FMLA, vector */
    {0xBFA0FC00, 0x0EA0CC00, FMA},  /* FMLS, vector */
    {0xBF80F400, 0x0F801000, FMA},  /* FMLA by element */
    {0xBF80F400, 0x0F805000, FMA},  /* FMLS by element */
    {0xFF208000, 0x1F000000, FMA},  /* FMADD */
    {0xBFC0F400, 0x0F001000, FP16}, /* FMLA by element, f16 */
    {0xBFE0FC00, 0x0E400C00, FP16}, /* FMLA, f16 */
    {0xBFE0FC00, 0x0EC00C00, FP16}, /* FMLS, f16 */
    {0x9F00F400, 0x0F00E000, DOT},  /* SDOT and UDOT by element */
    {0x9F20FC00, 0x0E009400, DOT},  /* SDOT and UDOT, vector */
    {0xBF00F400, 0x0F00F000, DOT},  /* USDOT and SUDOT by element */
    {0xBF20FC00, 0x0E009C00, DOT},  /* USDOT, vector */
    {0xDF20F400, 0x4E00A400, MMLA}, /* SMMLA, UMMLA, USMMLA */
    {0x9F00F400, 0x0F002000, IMAC}, /* SMLAL and UMLAL by element */
    {0x9F20FC00, 0x0E208000, IMAC}, /* SMLAL and UMLAL, vector */
    {0x9F00F400, 0x0F00A000, IMAC}, /* SMULL and UMULL by element */
    {0x9F20FC00, 0x0E20C000, IMAC}, /* SMULL and UMULL, vector */
    {0xBF20FC00, 0x0E209400, IMAC}, /* MLA, vector */
    {0xBF20FC00, 0x0E209C00, IMAC}, /* MUL, vector */
    {0xBF00F400, 0x2F000000, IMAC}, /* MLA by element */
    {0xBF00F400, 0x0F008000, IMAC}, /* MUL by element */
};

static void count(uint32_t *c, enum class class, enum class bytes, unsigned n) {
    c[class]++;
    c[bytes] += n;
}

/* Loads and stores (C4.1.89). */
static void count_access(uint32_t w, uint32_t *c) {
    const unsigned opc = w >> 22 & 3, size = w >> 30;
    const int vector = w >> 26 & 1, load = w >> 22 & 1;
    if ((w & 0xBF200000) == 0x0C000000 || (w & 0xBF800000) == 0x0C800000) { /* LD1..LD4 of whole vectors */
        static const unsigned registers[16] = {[0] = 4, [2] = 4, [4] = 3, [6] = 3, [7] = 1, [8] = 2, [10] = 2};
        const unsigned bytes = registers[w >> 12 & 15] * (size & 1 ? 16 : 8);
        count(c, load ? VLOAD : VSTORE, load ? LOADED : STORED, bytes);
    } else if ((w & 0xBF000000) == 0x0D000000) { /* one element, or LD1R */
        const unsigned scale = w >> 14 & 3;
        const unsigned bytes = 1u << (scale == 3 ? w >> 10 & 3 : scale == 2 && (w >> 10 & 1) ? 3 : scale);
        count(c, load ? VLOAD : VSTORE, load ? LOADED : STORED, bytes);
    } else if ((w & 0x3A000000) == 0x28000000) { /* pairs */
        const unsigned bytes = 2 * (vector ? 4u << size : size == 2 ? 8 : 4);
        count(c, vector ? (load ? VLOAD : VSTORE) : load ? LOAD : STORE, load ? LOADED : STORED, bytes);
    } else if ((w & 0x3A000000) == 0x38000000) {
        if (!vector && size == 3 && opc == 2) return; /* PRFM */
        const int reads = vector ? (int)(opc & 1) : opc != 0;
        const unsigned bytes = vector && (opc & 2) ? 16 : 1u << size;
        count(c, vector ? (reads ? VLOAD : VSTORE) : reads ? LOAD : STORE, reads ? LOADED : STORED, bytes);
    } else if ((w & 0x3B000000) == 0x18000000) { /* literals */
        count(c, vector ? VLOAD : LOAD, LOADED, vector ? 4u << size : size == 1 ? 8 : 4);
    } else { /* exclusive and ordered accesses */
        count(c, load ? LOAD : STORE, load ? LOADED : STORED, 1u << size);
    }
}

static void classify(uint32_t w, uint32_t *c) {
    const unsigned group = w >> 25 & 15;
    c[ALL]++;
    if ((group & 14) == 10)
        c[BRANCH]++;
    else if ((group & 5) == 4)
        count_access(w, c);
    else if ((group & 7) == 7) {
        for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++)
            if ((w & arithmetic[i].mask) == arithmetic[i].bits) {
                c[arithmetic[i].class]++;
                return;
            }
        c[VOTHER]++;
    }
}

#include "plugin_arm32.h"

static int is_arm32; /* the program is one for 32 bits */

/* A translated block: its instructions by class, and how often it ran. */
typedef struct block {
    uint64_t address, runs;
    uint32_t length, counts[COUNTS];
} block;

enum { TABLE = 1 << 20 };
static block *table[TABLE], **blocks;
static size_t n_blocks;
static FILE *out;

/* A data cache with lines of 64 bytes, which replaces the line that was not used for longest. */
enum { LINE = 64, WAYS_MOST = 16 };
static struct {
    unsigned sets, ways;
    uint64_t *lines; /* [set][way], the newest first; 0: none */
    uint64_t accesses, misses;
} cache;

static void on_memory(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)cpu, (void)info, (void)data;
    const uint64_t line = address / LINE + 1;
    uint64_t *set = cache.lines + (line - 1) % cache.sets * cache.ways;
    unsigned at = 0;
    while (at < cache.ways && set[at] != line) at++;
    cache.accesses++;
    if (at == cache.ways) cache.misses++, at--;
    memmove(set + 1, set, at * sizeof *set);
    set[0] = line;
}

static void write_counts(void) {
    uint64_t sum[COUNTS] = {0};
    for (size_t i = 0; i < n_blocks; i++)
        for (int k = 0; k < COUNTS; k++) sum[k] += blocks[i]->runs * blocks[i]->counts[k];
    fputs("mark", out);
    for (int k = 0; k < COUNTS; k++) fprintf(out, " %" PRIu64, sum[k]);
    fprintf(out, " %" PRIu64 " %" PRIu64 "\n", cache.accesses, cache.misses);
}

/* Marks also write how often each block has run so far, once before and once after the run that is looked at. */
static unsigned marks, from = ~0u, to = ~0u;

static void write_blocks(void) {
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i]->runs > 0) {
            fprintf(out, "block %u %" PRIx64 " %" PRIu64, marks, blocks[i]->address, blocks[i]->runs);
            for (int k = 0; k < COUNTS; k++) fprintf(out, " %u", blocks[i]->counts[k]);
            fputc('\n', out);
        }
}

static void on_mark(unsigned cpu, void *data) {
    (void)cpu, (void)data;
    write_counts();
    if (marks == from || marks == to) write_blocks();
    marks++;
}

/* The bytes of an instruction. Behind the last one before the end of a page, qemu shows some of the next. */
static size_t size_of(const struct qemu_plugin_tb *tb, size_t i) {
    const size_t size = qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    return size < sizeof(uint32_t) ? size : sizeof(uint32_t);
}

static uint32_t word_of(const struct qemu_plugin_tb *tb, size_t i) {
    uint32_t word = 0;
    memcpy(&word, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), size_of(tb, i));
    return word;
}

static int is_mark(const struct qemu_plugin_tb *tb, size_t i) {
    return word_of(tb, i) == (is_arm32 ? MARK_ARM32 : MARK);
}

/* The block of instructions [begin, end) of a translation. */
static block *block_of(const struct qemu_plugin_tb *tb, size_t begin, size_t end) {
    const size_t n = end - begin;
    const uint64_t address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, begin));
    size_t slot = (size_t)((address * 0x9E3779B97F4A7C15u >> 40) ^ n * 7919) % TABLE;
    for (; table[slot] != NULL; slot = (slot + 1) % TABLE)
        if (table[slot]->address == address && table[slot]->length == n) return table[slot];
    block *b = table[slot] = calloc(1, sizeof *b);
    if ((n_blocks & (n_blocks - 1)) == 0) blocks = realloc(blocks, (n_blocks > 0 ? 2 * n_blocks : 1) * sizeof *blocks);
    if (b == NULL || blocks == NULL || n_blocks == TABLE / 2) abort();
    b->address = address, b->length = (uint32_t)n;
    for (size_t i = begin; i < end; i++)
        if (is_arm32)
            classify_arm32(word_of(tb, i), size_of(tb, i), b->counts);
        else
            classify(word_of(tb, i), b->counts);
    return blocks[n_blocks++] = b;
}

/* A mark is a block of its own, so that what stands behind it is not counted before it. */
static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    const size_t n = qemu_plugin_tb_n_insns(tb);
    (void)id;
    for (size_t begin = 0, end; begin < n; begin = end) {
        const int marked = is_mark(tb, begin);
        for (end = begin + 1; end < n && !marked && !is_mark(tb, end);) end++;
        block *b = block_of(tb, begin, end);
        qemu_plugin_register_vcpu_insn_exec_inline(qemu_plugin_tb_get_insn(tb, begin), 0, &b->runs, 1);
        if (marked) qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(tb, begin), on_mark, 0, NULL);
        for (size_t i = begin; i < end && cache.lines != NULL; i++)
            qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), on_memory, 0, 3, NULL);
    }
}

static void at_exit(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    write_counts();
    if (fclose(out) != 0) abort();
}

/* Arguments: out=FILE, cache=BYTES:WAYS, and from=I and to=J, the numbers of marks at which blocks are written. */
SHOWN int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    is_arm32 = strcmp(info->target_name, "arm") == 0;
    for (int i = 0; i < argc; i++) {
        unsigned bytes, ways;
        if (!strncmp(argv[i], "out=", 4)) out = fopen(argv[i] + 4, "w");
        if (sscanf(argv[i], "from=%u", &from) == 1 || sscanf(argv[i], "to=%u", &to) == 1) continue;
        if (sscanf(argv[i], "cache=%u:%u", &bytes, &ways) != 2) continue;
        if (ways == 0 || ways > WAYS_MOST || bytes < ways * LINE) return 1;
        cache.ways = ways, cache.sets = bytes / (ways * LINE);
        cache.lines = calloc((size_t)cache.sets * ways, sizeof *cache.lines);
    }
    if (out == NULL) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
