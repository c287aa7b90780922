/* fuzz_model.c - changes a .lnt file at random, in memory, and opens, plans and runs what comes out.
 * usage: fuzz_model FILE.lnt COUNT SEED. Build it with sanitizers: whatever they find ends it with a status. */
#define _POSIX_C_SOURCE 200809L

#include "linnet.h"
#include "mutate.h"

#include <unistd.h>

enum { MOST_INPUTS = 16, CASE_SECONDS = 60 };
static const uint64_t most_bytes = 64 << 20, most_run_bytes = 4 << 20, most_flops = 20000000;

typedef struct fuzz {
    mutant m;
    size_t live; /* bytes that the library holds */
    long opened, planned, ran, codes[600];
} fuzz;

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
            uint64_t small = mutant_below(&f->m, 2); /* zeros and ones, so that indices are inside, or any bits */
            if (linnet_plan_input(plan, i, &input) == LINNET_OK)
                for (size_t k = 0; k < input.bytes; k++)
                    to[k] = (unsigned char)(input.dtype == LINNET_BOOL                ? k & 1
                                            : !small                                  ? mutant_next(&f->m)
                                            : k % linnet_dtype_size(input.dtype) == 0 ? mutant_next(&f->m) & 1
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
    config.threads = 1 + (int)mutant_below(&f->m, 2);
    config.max_bytes = most_bytes;
    config.reference = mutant_below(&f->m, 3) == 0;
    config.shapes = shapes;
    for (int i = 0; i < linnet_model_input_count(model, signature) && i < MOST_INPUTS; i++) {
        linnet_tensor_info info;
        linnet_shape *shape = &shapes[config.shape_count];
        int open = 0;
        if (linnet_model_input(model, signature, i, &info)) continue;
        shape->input = info.name;
        shape->rank = info.rank < 0 ? (int)mutant_below(&f->m, 4) : info.rank;
        for (int d = 0; d < shape->rank; d++) {
            shape->dims[d] = info.rank < 0 || info.shape[d] < 0 ? (int64_t)mutant_below(&f->m, 5) : info.shape[d];
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
    mutant_make(&f->m);
    /* An allocation of exactly the file's size: AddressSanitizer sees the first byte read behind it. */
    exact = malloc(f->m.size ? f->m.size : 1);
    if (!exact) exit(3);
    memcpy(exact, f->m.bytes, f->m.size);
    linnet_model_config_init(&config);
    config.allocator = &allocator;
    config.verify = -1; /* else few mutants would come further than that */
    status = linnet_model_open_memory(exact, f->m.size, mutant_below(&f->m, 4) == 0, &config, &model, &error);
    f->codes[status < 600 ? status : 599]++;
    check_record(model, &error, status);
    if (status == LINNET_OK) {
        f->opened++;
        check_record(NULL, &error, linnet_model_verify(model, (int)mutant_below(&f->m, 2), NULL, &error));
        for (int i = 0; i < linnet_model_signature_count(model) && i < 4; i++) plan(f, model, i);
    }
    linnet_model_free(model);
    free(exact);
    free(f->m.bytes);
    if (f->live) {
        printf("fuzz_model: %zu bytes were not given back\n", f->live);
        exit(4);
    }
}

int main(int argc, char **argv) {
    static fuzz f;
    long count;
    if (argc != 4 || (count = strtol(argv[2], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_model FILE.lnt COUNT SEED\n");
        return 2;
    }
    f.m.state = strtoull(argv[3], NULL, 10);
    if (!mutant_load(&f.m, argv[1])) {
        fprintf(stderr, "fuzz_model: error: cannot read %s\n", argv[1]);
        return 1;
    }
    for (long i = 0; i < count; i++) {
        fuzz before = f;
        if (getenv("FUZZ_VERBOSE")) fprintf(stderr, "case %ld: state %llu\n", i, (unsigned long long)before.m.state);
        alarm(CASE_SECONDS); /* a case that hangs is a failure: the signal ends the program */
        one_case(&f);
    }
    alarm(0);
    printf("fuzz_model: %ld cases, %ld opened, %ld planned, %ld runs;", count, f.opened, f.planned, f.ran);
    for (int code = 1; code < 600; code++)
        if (f.codes[code]) printf(" %s %ld", linnet_status_name(code), f.codes[code]);
    printf("\n");
    free(f.m.file);
    return 0;
}
