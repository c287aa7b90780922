/* test_structs.c - structs of older and newer clients: a struct_size is a minimum, and nothing beyond it is touched.
 * Structs of every size are taken and given from blocks of exactly that size, for AddressSanitizer and a guard byte. */
#include "check.h"

#include "base/structs.h"
#include "base/types.h"

#include <stdlib.h>
#include <string.h>

typedef struct linnet_sample {
    size_t struct_size;
    int64_t a;
    int64_t first_last; /* the last field of the first version */
    int64_t later;
} linnet_sample;

enum { FIRST = (int)LN_UP_TO(linnet_sample, first_last), NEWEST = (int)sizeof(linnet_sample) + 16 };

static void take_every_size(void) {
    for (size_t size = 0; size <= NEWEST; size++) {
        const linnet_sample full = {.struct_size = size, .a = 1, .first_last = 2, .later = 3};
        linnet_error error = {0};
        linnet_sample ours = {.later = 9};
        char *theirs = calloc(1, size > sizeof size ? size : sizeof size);
        memcpy(theirs, &full, size < sizeof full ? (size > sizeof size ? size : sizeof size) : sizeof full);
        const linnet_status status = LN_TAKE(linnet_sample, first_last, &ours, theirs, &error);
        if (size < FIRST) {
            CHECK_INT(status, LINNET_INVALID_ARGUMENT);
            CHECK(strstr(error.what, "linnet_sample.struct_size") != NULL);
            CHECK(strstr(error.hint, "linnet_sample_init") != NULL);
        } else {
            int64_t later = 0;
            if (size > FIRST) memcpy(&later, &full.later, (size < sizeof full ? size : sizeof full) - FIRST);
            CHECK_INT(status, LINNET_OK);
            CHECK(ours.struct_size == sizeof ours && ours.a == 1 && ours.first_last == 2 && ours.later == later);
        }
        free(theirs);
    }
}

static void give_every_size(void) {
    const linnet_sample ours = {.struct_size = sizeof ours, .a = 1, .first_last = 2, .later = 3};
    for (size_t size = 0; size <= NEWEST; size++) {
        const size_t block = (size > sizeof size ? size : sizeof size) + 1;
        char *theirs = malloc(block);
        memset(theirs, 0x5a, block);
        memcpy(theirs, &size, sizeof size);
        const linnet_status status = LN_GIVE(linnet_sample, first_last, &ours, theirs);
        CHECK_INT(status, size < FIRST ? LINNET_INVALID_ARGUMENT : LINNET_OK);
        CHECK(theirs[block - 1] == 0x5a && memcmp(theirs, &size, sizeof size) == 0);
        for (size_t i = sizeof size; size >= FIRST && i < size; i++)
            CHECK_INT(theirs[i], i < sizeof ours ? ((const char *)&ours)[i] : 0);
        free(theirs);
    }
}

static void refused(void) {
    char newer[sizeof(linnet_sample) + 8];
    linnet_error error;
    linnet_sample ours;
    linnet_struct_init(newer, sizeof newer);
    CHECK_INT(LN_TAKE(linnet_sample, first_last, &ours, newer, &error), LINNET_OK);
    newer[sizeof newer - 1] = 1; /* a field that we do not know */
    CHECK_INT(LN_TAKE(linnet_sample, first_last, &ours, newer, &error), LINNET_INVALID_ARGUMENT);
    CHECK(strstr(error.hint, linnet_version()) != NULL);
    CHECK_INT(LN_TAKE(linnet_sample, first_last, &ours, NULL, &error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(LN_GIVE(linnet_sample, first_last, &ours, NULL), LINNET_INVALID_ARGUMENT);
    memset(newer, 0x77, sizeof newer); /* never initialized: the size is absurd, so nothing is read or written */
    CHECK_INT(LN_TAKE(linnet_sample, first_last, &ours, newer, &error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(LN_GIVE(linnet_sample, first_last, &ours, newer), LINNET_INVALID_ARGUMENT);
}

/* The inline functions pass the caller's size, so that a short struct is cleared to its end and no further. */
static void init(void) {
    linnet_plan_config config;
    struct {
        size_t size;
        char rest[3], guard;
    } shorter = {9, {1, 2, 3}, 4};
    memset(&config, 0xff, sizeof config);
    linnet_plan_config_init(&config);
    CHECK(config.struct_size == sizeof config && config.signature == NULL && config.snapshot == 0);
    linnet_struct_init(&shorter, offsetof(__typeof__(shorter), guard));
    CHECK(shorter.size == offsetof(__typeof__(shorter), guard) && shorter.rest[2] == 0 && shorter.guard == 4);
    linnet_struct_init(NULL, 16);
}

static void quantization(void) {
    static const float scales[] = {0.5f, 0.25f, 2, 4};
    static const int32_t zeros[] = {1, 2, 3, 4};
    ln_quant quant = {.scheme = LN_QUANT_TENSOR, .bits = 8, .axis = 0, .count = 1, .scale = scales, .zero = zeros};
    ln_tensor t = {.dtype = LINNET_I8, .rank = 2, .dims = {4, 6}, .quant = &quant};
    linnet_tensor_info info = {.struct_size = sizeof info};
    CHECK_INT(ln_tensor_info(&t, "t", &info), LINNET_OK);
    CHECK(info.quant_scheme == LINNET_QUANT_TENSOR && info.scale == 0.5f && info.zero == 1 && info.quant_axis == -1);
    CHECK(info.bytes == 24 && info.bits == 8 && info.quant_count == 1 && !strcmp(info.layout, "dense"));
    quant.scheme = LN_QUANT_AXIS, quant.count = 4, quant.zero = NULL;
    CHECK_INT(ln_tensor_info(&t, "t", &info), LINNET_OK);
    CHECK(info.quant_scheme == LINNET_QUANT_AXIS && info.scale == 0 && info.quant_axis == 0 && info.quant_count == 4);
    CHECK(info.scales[3] == 4 && info.zeros == NULL && info.quant_block == 0);
    quant.scheme = LN_QUANT_BLOCK, quant.axis = 1, quant.block = 3, quant.count = 8;
    CHECK_INT(ln_tensor_info(&t, "t", &info), LINNET_OK);
    CHECK(info.quant_scheme == LINNET_QUANT_BLOCK && info.quant_axis == 1 && info.quant_block == 3);
    t.quant = NULL;
    CHECK_INT(ln_tensor_info(&t, "t", &info), LINNET_OK);
    CHECK(info.quant_scheme == LINNET_QUANT_NONE && info.quant_axis == -1 && info.quant_count == 0 && !info.scales);
}

int main(void) {
    take_every_size();
    give_every_size();
    refused();
    init();
    quantization();
    return check_end("test_structs");
}
