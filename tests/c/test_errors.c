/* test_errors.c - the error record and its one-line form, pools that free at once, and the ISA names.
 * Names come from files, so a record must be one line of valid UTF-8 for any name. */
#include "check.h"
#include "linnet_ext.h"

#include "kernel/cpu.h"
#include "kernel/kernel.h"
#include "base/memory.h"

static void records(void) {
    linnet_error error;
    char text[1024], narrow[12];
    size_t length;
    int64_t dims[3] = {1, -1, 224};
    CHECK_INT(ln_fail(&error, LINNET_CORRUPT, "thing %d", 7), LINNET_CORRUPT);
    ln_at_node(&error, 3, "conv\n1");
    ln_at_tensor(&error, "x");
    ln_expected(&error, "%d", 1);
    ln_got(&error, "%d", 2);
    CHECK_INT(ln_hint(&error, "do it"), LINNET_CORRUPT);
    linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(text, "corrupt: node 3 'conv?1': 'x': thing 7; expected 1, got 2; do it");
    length = linnet_error_format(&error, narrow, sizeof narrow);
    CHECK_INT(length, strlen(text));
    CHECK_TEXT(narrow, "corrupt: no");
    CHECK_INT(linnet_error_format(&error, NULL, 0), strlen(text));
    ln_fail(&error, LINNET_TOO_LARGE, "big");
    CHECK(error.hint[0] == 0 && error.op_index == -1);
    linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(text, "too_large: big");
    ln_got(&error, "3");
    linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(text, "too_large: big; got 3");
    CHECK_INT(ln_fail(NULL, LINNET_CORRUPT, "x"), LINNET_CORRUPT);
    ln_at_tensor(NULL, "x");
    memset(&error, 0, sizeof error);
    linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(text, "ok");
    CHECK_TEXT(ln_shape_text(dims, 3, text, sizeof text), "[1, ?, 224]");
    CHECK_TEXT(ln_shape_text(dims, 0, text, sizeof text), "[]");
    CHECK_TEXT(ln_shape_text(dims, -1, text, sizeof text), "unknown rank");
    CHECK_TEXT(ln_shape_text(dims, 3, text, 5), "[1, ");
}

/* A name of umlauts is truncated between characters, never inside one. */
/* The functions that other libraries write records with. */
static void exported(void) {
    linnet_error error;
    char text[300], longest[200];
    CHECK_INT(linnet_error_begin(&error, LINNET_REFUSED, "100%s of\nit"), LINNET_REFUSED);
    CHECK_INT(linnet_error_add(&error, LINNET_ERROR_AT, "x"), LINNET_REFUSED);
    CHECK_INT(linnet_error_add(&error, LINNET_ERROR_EXPECTED, "1"), LINNET_REFUSED);
    CHECK_INT(linnet_error_add(&error, LINNET_ERROR_GOT, "2"), LINNET_REFUSED);
    CHECK_INT(linnet_error_add(&error, LINNET_ERROR_HINT, "do it"), LINNET_REFUSED);
    linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(text, "refused: 'x': 100%s of?it; expected 1, got 2; do it");
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    longest[sizeof error.tensor - 2] = '\xc3', longest[sizeof error.tensor - 1] = '\xbc';
    linnet_error_add(&error, LINNET_ERROR_AT, longest);
    CHECK_INT(strlen(error.tensor), sizeof error.tensor - 2);
    CHECK_INT(linnet_error_add(&error, LINNET_ERROR_AT, NULL), LINNET_REFUSED);
    CHECK_TEXT(error.tensor, "");
    CHECK_INT(linnet_error_begin(NULL, LINNET_REFUSED, "x"), LINNET_REFUSED);
    CHECK_INT(linnet_error_add(NULL, LINNET_ERROR_HINT, "x"), LINNET_INVALID_ARGUMENT);
}

static void cut_names(void) {
    char name[400];
    for (int shift = 0; shift < 4; shift++) {
        linnet_error error;
        size_t at = (size_t)shift, end;
        memset(name, 'a', at);
        for (; at + 5 < sizeof name; at += 4) memcpy(name + at, "\xf0\x9f\x90\xa6", 4); /* a bird of four bytes */
        name[at] = 0;
        ln_fail(&error, LINNET_CORRUPT, "%s", name);
        end = strlen(error.what);
        CHECK_INT((end - (size_t)shift) % 4, 0);
        CHECK(end + 5 > sizeof error.what);
        ln_at_tensor(&error, name);
        CHECK_INT((strlen(error.tensor) - (size_t)shift) % 4, 0);
        ln_at_tensor(&error, NULL);
        CHECK_TEXT(error.tensor, "");
    }
}

static void pools(void) {
    ln_memory memory;
    ln_pool pool;
    uint64_t state = 1;
    char *first, *text;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    first = ln_pool_alloc(&pool, 100);
    CHECK(first != NULL && first[99] == 0);
    memset(first, 1, 100);
    for (int i = 0; i < 2000; i++) {
        size_t size = i % 100 == 0 ? 200000 : check_random(&state) % 300;
        unsigned char *p = ln_pool_alloc(&pool, size);
        int dirty = (uintptr_t)p % 16 != 0;
        for (size_t k = 0; k < size; k++) dirty |= p[k];
        memset(p, 0xff, size); /* later allocations must not overlap it */
        if (dirty) CHECK(!dirty);
    }
    for (int i = 0; i < 100; i++)
        if (first[i] != 1) CHECK(first[i] == 1);
    text = ln_pool_text(&pool, "abcdef", 3);
    CHECK_TEXT(text, "abc");
    CHECK(ln_pool_array(&pool, 0, 8) != NULL);
    CHECK(ln_pool_array(&pool, -1, 8) == NULL);
    CHECK(ln_pool_array(&pool, INT64_MAX, 8) == NULL);
    CHECK(ln_pool_array(&pool, INT64_MAX / 2, 4) == NULL);
    CHECK(ln_pool_alloc(&pool, SIZE_MAX) == NULL);
    CHECK(ln_memory_alloc(&memory, SIZE_MAX) == NULL);
    CHECK(memory.bytes > 20 * 200000 && memory.bytes < 8 * 1024 * 1024);
    ln_pool_free(&pool);
    CHECK_INT(memory.bytes, 0);
}

#if defined(__x86_64__)
/* CPUID's words of processors that have one feature without the other. */
static void processors(void) {
    const unsigned avx = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29, avx2 = 1u << 5;
    const unsigned avx512 = avx2 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, vnni = 1u << 11, avxvnni = 1u << 4;
    const unsigned bf16 = 1u << 5, ymm = 0x7, zmm = 0xe7;
    CHECK_INT(ln_x86_features(0, 0, 0, 0, 0), LN_SSE2);
    CHECK_INT(ln_x86_features(avx, avx2, 0, 0, ymm), LN_ISA_avx2);
    CHECK_INT(ln_x86_features(avx & ~(1u << 12), avx2, 0, 0, ymm), LN_SSE2);     /* no FMA */
    CHECK_INT(ln_x86_features(avx, avx512, vnni, avxvnni | bf16, 0x3), LN_SSE2); /* the system saves no YMM state */
    CHECK_INT(ln_x86_features(avx, avx2, 0, avxvnni, ymm), LN_ISA_avx2 | LN_AVXVNNI);
    CHECK_INT(ln_x86_features(avx, avx512, vnni, avxvnni, ymm), LN_ISA_avx2 | LN_AVXVNNI); /* and no ZMM state */
    CHECK_INT(ln_x86_features(avx, avx512, 0, 0, zmm), LN_ISA_avx512);
    CHECK_INT(ln_x86_features(avx, avx512, vnni, 0, zmm), LN_ISA_avx512vnni);
    CHECK_INT(ln_x86_features(avx, avx512, 0, bf16, zmm), LN_ISA_avx512 | LN_AVX512BF16);
    CHECK_TEXT(ln_isa_of(LN_ISA_avx2 | LN_AVXVNNI)->name, "avx2");
    CHECK_TEXT(ln_isa_of(LN_ISA_avx512 | LN_AVX512BF16)->name, "avx512");
}
#else
static void processors(void) { CHECK((ln_detect_features() != 0) == (linnet_isa_name(1) != NULL)); }
#endif

static void sets(void) {
    const ln_features features = ln_detect_features();
    int n = 0;
    CHECK_TEXT(linnet_isa_name(0), "scalar");
    for (; linnet_isa_name(n) != NULL; n++) {
        const ln_isa_set *set = ln_isa_find(linnet_isa_name(n));
        CHECK(set != NULL && (set->mark & ~features) == 0 && (set->mark & ~set->most) == 0);
        CHECK_TEXT(ln_isa_of(set->most & features)->name, linnet_isa_name(n));
    }
    CHECK_TEXT(ln_isa_of(features)->name, linnet_isa_name(n - 1));
    CHECK(linnet_isa_name(-1) == NULL);
    CHECK(ln_isa_find("mmx") == NULL);
    CHECK(ln_isa_find("") == NULL);
    CHECK(ln_isa_find(NULL) == NULL);
    processors();
    CHECK(linnet_default_threads() >= 1);
    CHECK_TEXT(linnet_version(), "0.1.0");
    CHECK_TEXT(linnet_status_name(LINNET_ARENA_TOO_SMALL), "arena_too_small");
    CHECK_TEXT(linnet_status_name(12345), "unknown_status");
}

int main(void) {
    records();
    exported();
    cut_names();
    pools();
    sets();
    return check_end("test_errors");
}
