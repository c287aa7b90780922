/* fuzz_model.c - changes a .lnt file at random, in memory, and opens, plans and runs what comes out.
 * usage: fuzz_model FILE.lnt COUNT SEED. Build it with sanitizers: whatever they find ends it with a status. */
#define _POSIX_C_SOURCE 200809L

#include "core/crc32.h"
#include "linnet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 64, MOST_CHANGES = 4, MOST_INPUTS = 16, CASE_SECONDS = 60 };
static const uint64_t most_bytes = 64 << 20, most_run_bytes = 4 << 20, most_flops = 20000000;

typedef struct fuzz {
    unsigned char *file, *bytes; /* as given; as changed, in an allocation of exactly `size` */
    size_t file_size, size;
    uint64_t state;
    size_t live; /* bytes that the library holds */
    long opened, planned, ran, codes[600];
} fuzz;

static uint64_t next(fuzz *f) {
    uint64_t z = (f->state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static size_t below(fuzz *f, size_t n) { return n ? (size_t)(next(f) % n) : 0; }

/* The host's memory is bounded too: a model may not take it all. */
static void *bounded_alloc(void *context, size_t size, size_t alignment) {
    fuzz *f = context;
    void *pointer;
    if (size > 4 * most_bytes - f->live) return NULL;
    pointer = aligned_alloc(alignment, size);
    f->live += pointer ? size : 0;
    return pointer;
}

static void bounded_free(void *context, void *pointer, size_t size) {
    ((fuzz *)context)->live -= size;
    free(pointer);
}

static void put(unsigned char *to, uint64_t value, int width) {
    for (int i = 0; i < width; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(const unsigned char *from, int width) {
    uint64_t value = 0;
    for (int i = width; i-- > 0;) value = value << 8 | from[i];
    return value;
}

/* Mostly in the structure: changed weights are only other weights. */
static size_t place(fuzz *f) {
    size_t structure = (size_t)get(f->file + 24, 8);
    if (below(f, 8) && f->size > HEADER)
        return HEADER + below(f, structure < f->size - HEADER ? structure : f->size - HEADER);
    return below(f, f->size);
}

static void change(fuzz *f) {
    static const uint64_t telling[] = {0,
                                       1,
                                       2,
                                       3,
                                       7,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x7fff,
                                       0xffff,
                                       0x7fffffff,
                                       0x80000000u,
                                       0xffffffffu,
                                       0x7fffffffffffffffull,
                                       0x8000000000000000ull,
                                       0xffffffffffffffffull,
                                       64,
                                       1 << 20};
    size_t at = place(f);
    int width = 1 << below(f, 4);
    switch (below(f, 6)) {
    case 0: f->bytes[at] ^= (unsigned char)(1u << below(f, 8)); break;
    case 1: f->bytes[at] = (unsigned char)next(f); break;
    case 2: /* a number becomes a telling one */
        at -= at % (size_t)width;
        if (at + (size_t)width <= f->size)
            put(f->bytes + at, telling[below(f, sizeof telling / sizeof *telling)], width);
        break;
    case 3: /* a number becomes its neighbour, or a small multiple of 4 away: offsets and counts */
        at -= at % (size_t)width;
        if (at + (size_t)width <= f->size) {
            uint64_t step = below(f, 2) ? 1 : 4 * (1 + below(f, 16));
            put(f->bytes + at, get(f->bytes + at, width) + (below(f, 2) ? step : 0 - step), width);
        }
        break;
    case 4: { /* splice: a piece from elsewhere */
        size_t from = place(f), length = 1 + below(f, 64);
        if (length > f->size - at) length = f->size - at;
        if (length > f->size - from) length = f->size - from;
        memmove(f->bytes + at, f->bytes + from, length);
        break;
    }
    default: { /* two numbers change places */
        size_t other = place(f);
        unsigned char keep[8];
        at -= at % (size_t)width;
        other -= other % (size_t)width;
        if (at + (size_t)width <= f->size && other + (size_t)width <= f->size) {
            memcpy(keep, f->bytes + at, (size_t)width);
            memmove(f->bytes + at, f->bytes + other, (size_t)width);
            memcpy(f->bytes + other, keep, (size_t)width);
        }
    }
    }
}

static void make_case(fuzz *f) {
    int changes = 1 + (int)below(f, MOST_CHANGES);
    f->size = below(f, 16) ? f->file_size : below(f, f->file_size + 1); /* now and then truncated */
    f->bytes = aligned_alloc(64, (f->size + 63) / 64 * 64 + 64);
    if (!f->bytes) exit(3);
    memcpy(f->bytes, f->file, f->size);
    for (int i = 0; i < changes && f->size; i++) change(f);
    if (f->size > HEADER && below(f, 8)) { /* mostly sealed again, or nothing behind the checksum is ever reached */
        uint64_t structure = get(f->bytes + 24, 8);
        memcpy(f->bytes, f->file, 24);
        put(f->bytes + 40, f->size, 8);
        if (structure > f->size - HEADER) {
            structure = f->size - HEADER;
            put(f->bytes + 24, structure, 8);
        }
        put(f->bytes + 32, ln_crc32(0, f->bytes + HEADER, (size_t)structure), 4);
    }
}

/* A failure leaves no object, and a record of its code in one line. */
static void check_record(const void *made, const linnet_error *error, linnet_status status) {
    char text[1024];
    if (status == LINNET_OK) return;
    linnet_error_format(error, text, sizeof text);
    if (!made && error->code == (int)status && error->what[0] && !strchr(text, '\n')) return;
    printf("fuzz_model: status %d with a bad record: %s\n", (int)status, text);
    exit(4);
}

/* Runs it when that is a matter of moments. */
static void run(fuzz *f, linnet_plan *plan) {
    linnet_plan_info info = {.struct_size = sizeof info};
    linnet_session *session = NULL;
    linnet_error error;
    uint64_t flops = 0, bytes = 0;
    if (linnet_plan_get_info(plan, &info)) return;
    for (int i = 0; i < info.steps; i++) {
        linnet_step_info step = {.struct_size = sizeof step};
        if (linnet_plan_get_step(plan, i, &step) || !strcmp(step.op, "while")) /* a loop may be endless by right */
            return;
        flops += step.flops;
        bytes += step.bytes;
    }
    if (flops > most_flops || bytes > most_run_bytes) return;
    if (linnet_session_create(plan, NULL, NULL, &session, &error) == LINNET_OK) {
        for (int i = 0; i < linnet_plan_input_count(plan); i++) {
            linnet_tensor_info input;
            unsigned char *to = linnet_session_input(session, i);
            uint64_t small = below(f, 2); /* zeros and ones, so that indices are inside, or any bits */
            if (linnet_plan_input(plan, i, &input) == LINNET_OK)
                for (size_t k = 0; k < input.bytes; k++)
                    to[k] = (unsigned char)(input.dtype == LINNET_BOOL                ? k & 1
                                            : !small                                  ? next(f)
                                            : k % linnet_dtype_size(input.dtype) == 0 ? next(f) & 1
                                                                                      : 0);
        }
        for (int i = 0; i < 2; i++) {
            linnet_status status = linnet_run(session, &error);
            check_record(NULL, &error, status);
            f->codes[status < 600 ? status : 599]++;
            f->ran += status == LINNET_OK;
        }
    }
    linnet_session_free(session);
}

static void plan(fuzz *f, linnet_model *model, int signature) {
    linnet_shape shapes[MOST_INPUTS];
    linnet_plan_config config;
    linnet_plan *made = NULL;
    linnet_error error;
    linnet_status status;
    linnet_plan_config_init(&config);
    config.signature = linnet_model_signature_name(model, signature);
    config.threads = 1 + (int)below(f, 2);
    config.max_bytes = most_bytes;
    config.reference = below(f, 3) == 0;
    config.shapes = shapes;
    for (int i = 0; i < linnet_model_input_count(model, signature) && i < MOST_INPUTS; i++) {
        linnet_tensor_info info;
        linnet_shape *shape = &shapes[config.shape_count];
        int open = 0;
        if (linnet_model_input(model, signature, i, &info)) continue;
        shape->input = info.name;
        shape->rank = info.rank < 0 ? (int)below(f, 4) : info.rank;
        for (int d = 0; d < shape->rank; d++) {
            shape->dims[d] = info.rank < 0 || info.shape[d] < 0 ? (int64_t)below(f, 5) : info.shape[d];
            open |= info.rank < 0 || info.shape[d] < 0;
        }
        config.shape_count += open || info.rank < 0;
    }
    status = linnet_plan_create(model, &config, &made, &error);
    f->codes[status < 600 ? status : 599]++;
    if (status == LINNET_OK) {
        f->planned++;
        run(f, made);
    }
    check_record(made, &error, status);
    linnet_plan_free(made);
}

static void one_case(fuzz *f) {
    linnet_allocator allocator = {f, bounded_alloc, bounded_free};
    linnet_model_config config;
    linnet_model *model = NULL;
    linnet_error error;
    linnet_status status;
    unsigned char *exact;
    make_case(f);
    /* An allocation of exactly the file's size: AddressSanitizer sees the first byte read behind it. */
    exact = malloc(f->size ? f->size : 1);
    if (!exact) exit(3);
    memcpy(exact, f->bytes, f->size);
    linnet_model_config_init(&config);
    config.allocator = &allocator;
    status = linnet_model_open_memory(exact, f->size, below(f, 4) == 0, &config, &model, &error);
    f->codes[status < 600 ? status : 599]++;
    check_record(model, &error, status);
    if (status == LINNET_OK) {
        f->opened++;
        for (int i = 0; i < linnet_model_signature_count(model) && i < 4; i++) plan(f, model, i);
    }
    linnet_model_free(model);
    free(exact);
    free(f->bytes);
    if (f->live) {
        printf("fuzz_model: %zu bytes were not given back\n", f->live);
        exit(4);
    }
}

static int load(fuzz *f, const char *path) {
    FILE *file = fopen(path, "rb");
    long size;
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < HEADER || fseek(file, 0, SEEK_SET)) return 0;
    f->file_size = (size_t)size;
    f->file = malloc(f->file_size);
    size = f->file && fread(f->file, 1, f->file_size, file) == f->file_size;
    fclose(file);
    return (int)size;
}

int main(int argc, char **argv) {
    static fuzz f;
    long count;
    if (argc != 4 || (count = strtol(argv[2], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_model FILE.lnt COUNT SEED\n");
        return 2;
    }
    f.state = strtoull(argv[3], NULL, 10);
    if (!load(&f, argv[1])) {
        fprintf(stderr, "fuzz_model: error: cannot read %s\n", argv[1]);
        return 1;
    }
    for (long i = 0; i < count; i++) {
        fuzz before = f;
        if (getenv("FUZZ_VERBOSE")) fprintf(stderr, "case %ld: state %llu\n", i, (unsigned long long)before.state);
        alarm(CASE_SECONDS); /* a case that hangs is a failure: the signal ends the program */
        one_case(&f);
    }
    alarm(0);
    printf("fuzz_model: %ld cases, %ld opened, %ld planned, %ld runs;", count, f.opened, f.planned, f.ran);
    for (int code = 1; code < 600; code++)
        if (f.codes[code]) printf(" %s %ld", linnet_status_name(code), f.codes[code]);
    printf("\n");
    free(f.file);
    return 0;
}
