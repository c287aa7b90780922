/* source_device.c - a device, on public headers alone, that compiles what it runs: maps, and f32 products and
 * convolutions with a map as their epilogue. It writes each claim as one C file around the text of
 * linnet_step_map_source, runs the system's compiler, and loads the result. Its memory is that of the host, and each
 * call has ended when it returns. */
#define _POSIX_C_SOURCE 200809L

#include "linnet_device.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MOST_STEPS = 64, MOST_OPERANDS = 64 };

/* A function of the compiled file: one step. `x` and `y` are the operands, then their scales, then their zero points.
 */
typedef void (*compiled_step)(const void *const *x, void *const *y);

typedef struct compiled {
    void *library;
    compiled_step steps[MOST_STEPS];
} compiled;

static char options[512] = "-O2", folder[512] = "/tmp";
static int built, epilogues;

/* ---- what the device takes --------------------------------------------------------------------------------------- */

static int limits(void *context, linnet_device_limits *out) {
    (void)context;
    out->epilogues = 1;
    return 0;
}

static linnet_device_tensor input(const linnet_step *step, int i) {
    linnet_device_tensor t;
    linnet_device_tensor_init(&t);
    if (linnet_step_get_input(step, i, &t) != LINNET_OK) t.dtype = LINNET_NONE;
    return t;
}

static linnet_device_tensor output(const linnet_step *step, int i) {
    linnet_device_tensor t;
    linnet_device_tensor_init(&t);
    if (linnet_step_get_output(step, i, &t) != LINNET_OK) t.dtype = LINNET_NONE;
    return t;
}

/* Whether a list or a number has no other value than this one. */
static int is(const linnet_step *step, const char *attribute, int64_t value) {
    int count = 0;
    const int64_t *v = linnet_step_integers(step, attribute, &count);
    for (int i = 0; i < count; ++i)
        if (v[i] != value) return 0;
    return 1;
}

static int is_product(const linnet_step *step) {
    return strcmp(linnet_step_op(step), "matmul") == 0 && is(step, "transpose_a", 0) && is(step, "transpose_b", 0) &&
           input(step, 0).rank >= 2 && input(step, 1).rank == 2;
}

static int is_conv(const linnet_step *step) { /* without strides and padding: enough for an example */
    return strcmp(linnet_step_op(step), "conv") == 0 && is(step, "strides", 1) && is(step, "dilations", 1) &&
           is(step, "pads", 0) && is(step, "group", 1) && is(step, "auto_pad", 0) && is(step, "channel_axis", 1) &&
           input(step, 0).rank == 4;
}

static double cost(void *context, const linnet_step *step) {
    (void)context;
    if (strcmp(linnet_step_op(step), "map") == 0)
        return linnet_step_input_count(step) + linnet_step_output_count(step) <= MOST_OPERANDS / 3 ? 0 : -1;
    if (!is_product(step) && !is_conv(step)) return -1;
    linnet_map map;
    linnet_map_init(&map);
    const int own = linnet_step_get_map(step, &map) == LINNET_OK ? map.first : linnet_step_input_count(step);
    const int bias = own > 2 && input(step, 2).dtype != LINNET_NONE;
    return !bias && input(step, 0).dtype == LINNET_F32 && input(step, 1).dtype == LINNET_F32 ? 0 : -1;
}

static int claim(void *context, const linnet_step *const *steps, int count, linnet_claim *out) {
    (void)context;
    (void)steps;
    out->count = count < MOST_STEPS ? count : MOST_STEPS;
    out->kernel = "compiled";
    return 0;
}

/* ---- source ------------------------------------------------------------------------------------------------------ */

typedef struct text {
    char *at;
    size_t length, size;
} text;

static void put(text *t, const char *format, ...) {
    for (int pass = 0; pass < 2; ++pass) {
        va_list arguments;
        va_start(arguments, format);
        const int n = vsnprintf(t->at + t->length, t->size - t->length, format, arguments);
        va_end(arguments);
        if ((size_t)n < t->size - t->length) {
            t->length += (size_t)n;
            return;
        }
        t->size = 2 * t->size + (size_t)n + 1;
        t->at = realloc(t->at, t->size);
        if (t->at == NULL) abort();
    }
}

static const char *element_type(int dtype) {
    static const char *const names[] = {"",       "float",  "ln_u16", "ln_u16", "double", "ln_i8",  "ln_i16",
                                        "ln_i32", "ln_i64", "ln_u8",  "ln_u16", "ln_u32", "ln_u64", "ln_u8"};
    return names[dtype];
}

/* Declares an element of an operand that is broadcast to `rank` dimensions, and the arrays that it may need. */
static void put_input(text *t, const linnet_device_tensor *x, int n, int operand, int operands, int rank) {
    const char *type = element_type(x->dtype);
    put(t, "const %s *x%d_table=x[%d],x%d=x%d_table[0", type, n, operand, n, n);
    for (int d = 0; d < x->rank && rank >= x->rank; ++d)
        if (x->shape[d] != 1) put(t, "+i%d*%lldl", rank - x->rank + d, (long long)x->strides[d]);
    put(t, "];\nconst float *x%d_scale=x[%d];const ln_i32 *x%d_zero=x[%d];\n", n, operands + operand, n,
        2 * operands + operand);
    put(t, "(void)x%d_table;(void)x%d;(void)x%d_scale;(void)x%d_zero;\n", n, n, n, n);
}

/* Declares xN, the result of the op for the coordinates i0, i1, ... */
static void put_result(text *t, const linnet_step *step, int n) {
    const linnet_device_tensor a = input(step, 0), b = input(step, 1);
    put(t, "const float *a=x[0],*b=x[1];float x%d=0;\n", n);
    if (is_product(step)) {
        put(t, "a+=0");
        for (int d = 0; d + 1 < a.rank; ++d) put(t, "+i%d*%lldl", d, (long long)a.strides[d]);
        put(t, ";for(long k=0;k<%lldl;k++)x%d+=a[k]*b[k*%lldl+i%d];\n", (long long)b.shape[0], n, (long long)b.shape[1],
            a.rank - 1);
    } else {
        put(t, "for(long c=0;c<%lldl;c++)for(long u=0;u<%lldl;u++)for(long v=0;v<%lldl;v++)\n", (long long)b.shape[1],
            (long long)b.shape[2], (long long)b.shape[3]);
        put(t, "x%d+=a[i0*%lldl+c*%lldl+(i2+u)*%lldl+i3+v]*b[i1*%lldl+c*%lldl+u*%lldl+v];\n", n,
            (long long)a.strides[0], (long long)a.strides[1], (long long)a.strides[2], (long long)b.strides[0],
            (long long)b.strides[1], (long long)b.strides[2]);
    }
}

/* Writes one step as a function. */
static int put_step(text *t, const linnet_step *step, int number) {
    linnet_map map;
    linnet_map_init(&map);
    const int mapped = linnet_step_get_map(step, &map) == LINNET_OK, inputs = linnet_step_input_count(step);
    const int outputs = linnet_step_output_count(step);
    const linnet_device_tensor shape = output(step, 0);
    put(t, "void step%d(const void *const *x,void *const *y){\nlong e=0;\n", number);
    for (int d = 0; d < shape.rank; ++d)
        put(t, "for(long i%d=0;i%d<%lldl;i%d++)\n", d, d, (long long)shape.shape[d], d);
    put(t, "{\n");
    if (!mapped || map.result >= 0) put_result(t, step, mapped ? map.result : 0);
    for (int n = 0, extra = map.first; mapped && n < map.input_count; ++n) {
        if (n == map.result) continue;
        const linnet_device_tensor x = input(step, extra);
        put_input(t, &x, n, extra++, inputs, shape.rank);
    }
    for (int n = 0; n < outputs; ++n) {
        put(t, "%s y%d;const float *y%d_scale=y[%d];const ln_i32 *y%d_zero=y[%d];\n",
            element_type(output(step, n).dtype), n, n, outputs + n, n, 2 * outputs + n);
        put(t, "(void)y%d_scale;(void)y%d_zero;\n", n, n);
    }
    if (mapped) {
        size_t length = 0;
        char *block;
        if (linnet_step_map_source(step, NULL, NULL, 0, &length) != LINNET_OK) return 2;
        block = malloc(length + 1);
        if (block == NULL || linnet_step_map_source(step, NULL, block, length + 1, &length) != LINNET_OK) return 2;
        put(t, "%s", block);
        free(block);
        epilogues += map.result >= 0;
    } else {
        put(t, "y0=x0;\n");
    }
    for (int n = 0; n < outputs; ++n)
        put(t, "if(y[%d])((%s *)y[%d])[e]=y%d;\n", n, element_type(output(step, n).dtype), n, n);
    put(t, "e++;\n}\n}\n");
    return 0;
}

/* ---- compiling and running --------------------------------------------------------------------------------------- */

static int prepare(void *context, linnet_handle queue, const linnet_work *work, linnet_handle *state) {
    (void)context;
    (void)queue;
    text steps = {0};
    char path[640], command[2048], name[16];
    size_t length = 0;
    for (int s = 0; s < work->count; ++s)
        if (put_step(&steps, work->steps[s], s) != 0) return 2;
    if (linnet_map_prelude(NULL, steps.at, NULL, 0, &length) != LINNET_OK) return 2;
    char *prelude = malloc(length + 1);
    compiled *made = calloc(1, sizeof *made);
    if (prelude == NULL || made == NULL ||
        linnet_map_prelude(NULL, steps.at, prelude, length + 1, &length) != LINNET_OK)
        return 2;
    snprintf(path, sizeof path, "%s/source%d_%d.c", folder, (int)getpid(), built++);
    FILE *file = fopen(path, "w");
    if (file == NULL) return 3;
    fprintf(file, "%s%s", prelude, steps.at);
    fclose(file);
    free(prelude);
    free(steps.at);
    snprintf(command, sizeof command, "cc -std=c99 -shared -fPIC -ffp-contract=off -fno-builtin %s %s -o %s.so -lm",
             options, path, path);
    if (system(command) != 0) return 4;
    snprintf(command, sizeof command, "%s.so", path);
    made->library = dlopen(command, RTLD_NOW | RTLD_LOCAL);
    for (int s = 0; made->library != NULL && s < work->count; ++s) {
        snprintf(name, sizeof name, "step%d", s);
        void *symbol = dlsym(made->library, name);
        memcpy(&made->steps[s], &symbol, sizeof symbol);
        if (symbol == NULL) return 5;
    }
    *state = (uintptr_t)made;
    return made->library != NULL ? 0 : 5;
}

static void unprepare(void *context, linnet_handle state) {
    (void)context;
    compiled *made = (compiled *)(uintptr_t)state;
    dlclose(made->library);
    free(made);
}

static char *real(const linnet_span *span) {
    return span->buffer ? (char *)(uintptr_t)span->buffer + span->offset : NULL;
}

static int run(void *context, linnet_handle queue, const linnet_work *work, linnet_handle state) {
    (void)context;
    (void)queue;
    const compiled *made = (const compiled *)(uintptr_t)state;
    for (int s = 0; s < work->count; ++s) {
        const linnet_step *step = work->steps[s];
        const int inputs = linnet_step_input_count(step), outputs = linnet_step_output_count(step);
        const void *x[3 * MOST_OPERANDS];
        void *y[3 * MOST_OPERANDS];
        for (int i = 0; i < inputs; ++i) {
            const linnet_device_tensor t = input(step, i);
            x[i] = real(&work->inputs[s][i]);
            x[inputs + i] = t.scales;
            x[2 * inputs + i] = t.zeros;
        }
        for (int i = 0; i < outputs; ++i) {
            const linnet_device_tensor t = output(step, i);
            y[i] = real(&work->outputs[s][i]);
            y[outputs + i] = (void *)(uintptr_t)t.scales;
            y[2 * outputs + i] = (void *)(uintptr_t)t.zeros;
        }
        made->steps[s](x, y);
    }
    return 0;
}

/* ---- memory, queues and events ----------------------------------------------------------------------------------- */

static int allocate(void *context, uint64_t bytes, linnet_handle *buffer) {
    (void)context;
    *buffer = (uintptr_t)aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    return *buffer == 0;
}

static void release(void *context, linnet_handle buffer, uint64_t bytes) {
    (void)context;
    (void)bytes;
    free((void *)(uintptr_t)buffer);
}

static int create(void *context, linnet_handle *object) {
    (void)context;
    *object = 1;
    return 0;
}

static void destroy(void *context, linnet_handle object) {
    (void)context;
    (void)object;
}

static int nothing(void *context, linnet_handle object) {
    (void)context;
    (void)object;
    return 0;
}

static int record(void *context, linnet_handle queue, linnet_handle event) {
    (void)context;
    (void)queue;
    (void)event;
    return 0;
}

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    (void)context;
    (void)queue;
    memcpy(real(to), from, (size_t)tensor->bytes);
    return 0;
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    (void)context;
    (void)queue;
    memcpy(to, real(from), (size_t)tensor->bytes);
    return 0;
}

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    (void)context;
    (void)queue;
    (void)of;
    memcpy(real(to), real(from), (size_t)from->bytes);
    return 0;
}

static const char *explain(void *context, int code) {
    (void)context;
    return code == 4 ? "the compiler failed" : "the source could not be written or loaded";
}

static const linnet_device device = {
    .struct_size = sizeof(linnet_device),
    .version = LINNET_DEVICE_VERSION,
    .name = "source",
    .limits = limits,
    .cost = cost,
    .claim = claim,
    .allocate = allocate,
    .release = release,
    .open = create,
    .close = destroy,
    .finish = nothing,
    .create_event = create,
    .free_event = destroy,
    .record = record,
    .wait = nothing,
    .upload = upload,
    .download = download,
    .copy = copy,
    .prepare = prepare,
    .unprepare = unprepare,
    .run = run,
    .explain = explain,
};

EXPORT const linnet_device *linnet_extension_device(void);
const linnet_device *linnet_extension_device(void) { return &device; }

/* Sets the folder for files and the compiler's options. */
EXPORT void source_settings(const char *where, const char *words);
void source_settings(const char *where, const char *words) {
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(options, sizeof options, "%s", words);
}

/* Files compiled, or epilogues among their steps. */
EXPORT int source_count(int what);
int source_count(int what) { return what == 0 ? built : epilogues; }
