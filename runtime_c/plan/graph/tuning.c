/* tuning.c - reads tuning files: lines "KEY = KERNEL" below a header, which overrule the costs.
 * A key is the text of everything about a call that decides how fast a kernel is. The table keeps only its hash. */
#include "plan/graph/tuning.h"

#include "base/layout.h"
#include "dispatch/dispatch.h"
#include "kernel/machine.h"

#include <string.h>

#ifdef LN_WITHOUT_TUNING

linnet_status ln_tuning_read(const char *text, ln_pool *pool, const ln_log_target *log, const ln_tuning **out,
                             const struct ln_machine **machine, linnet_error *error) {
    (void)text, (void)pool, (void)log, (void)out, (void)machine;
    return ln_left_out("linnet_plan_config.tuning", "LINNET_TUNING", error);
}

const ln_kernel *ln_tuned_kernel(const ln_tuning *tuning, const ln_call *call, bool reference_only, double *ns) {
    (void)tuning;
    return ln_choose_kernel(call, reference_only, ns);
}

#else

#include <stdio.h>
#include <stdlib.h>

/* ---- keys -------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    char *text;
    size_t size, length;
    uint64_t hash;
} writer;

static void put(writer *w, const char *text) {
    for (; *text != 0; ++text) {
        if (w->length + 1 < w->size) w->text[w->length] = *text;
        ++w->length;
        w->hash = (w->hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
}

static void put_integers(writer *w, const int64_t *v, int64_t n) {
    char text[24];
    for (int64_t i = 0; i < n; ++i) {
        snprintf(text, sizeof text, "%s%lld", i > 0 ? "," : "", (long long)v[i]);
        put(w, text);
    }
}

static void put_bytes(writer *w, const void *v, size_t bytes) {
    char text[20];
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char *)v)[i]) * UINT64_C(1099511628211);
    snprintf(text, sizeof text, "#%016llx", (unsigned long long)hash);
    put(w, text);
}

static void put_tensor(writer *w, const ln_tensor *t) {
    if (t->dtype == LINNET_NONE) {
        put(w, " -");
        return;
    }
    put(w, " ");
    put(w, linnet_dtype_name(t->dtype));
    put(w, "[");
    put_integers(w, t->dims, t->rank);
    put(w, "]");
    if (t->quant != NULL) {
        const int64_t block = t->quant->block;
        put(w, t->quant->scheme == LN_QUANT_TENSOR ? ":scale" : t->quant->scheme == LN_QUANT_AXIS ? ":axis" : ":block");
        if (t->quant->scheme == LN_QUANT_BLOCK) put_integers(w, &block, 1);
    }
    if (!ln_is_dense(t)) {
        if (ln_is_channels_last(t)) {
            put(w, ":channels_last");
        } else {
            put(w, ":strides");
            put_integers(w, t->strides, t->rank);
        }
    }
    if (ln_packable(t)) put(w, ":constant");
}

/* Attributes that have their default are left out. */
static void put_attribute(writer *w, const ln_attribute *a, const void *attributes) {
    enum { MOST = 12 };
    const char *at = (const char *)attributes + a->offset;
    const int64_t *v = (const int64_t *)at;
    int64_t n = 1;
    size_t size = 0; /* bytes of the values whose hash is written */
    if (a->type == LN_ATTRIBUTE_FLOAT) {
        if (*(const double *)at == a->fallback.real) return;
        size = sizeof(double);
    } else if (a->type == LN_ATTRIBUTE_FLOATS) {
        v = (const int64_t *)(const void *)((const ln_floats *)at)->v;
        size = (size_t)(n = ((const ln_floats *)at)->n) * sizeof(double);
    } else if (a->type == LN_ATTRIBUTE_BYTES) {
        v = (const int64_t *)(const void *)((const ln_text *)at)->v;
        size = (size_t)(n = ((const ln_text *)at)->n);
    } else if (a->type == LN_ATTRIBUTE_INTS) {
        v = ((const ln_ints *)at)->v;
        n = ((const ln_ints *)at)->n;
        if (n > MOST) size = (size_t)n * sizeof *v;
    } else if (*v == a->fallback.integer) {
        return;
    }
    if (n == 0) return;
    put(w, " ");
    put(w, ln_names + a->name);
    put(w, "=");
    if (size > 0)
        put_bytes(w, v, size);
    else
        put_integers(w, v, n);
}

static bool is_float(const ln_tensor *t) {
    return t->dtype == LINNET_F32 || t->dtype == LINNET_F16 || t->dtype == LINNET_BF16;
}

uint64_t ln_call_key(const ln_call *call, char *text, size_t size, size_t *length) {
    writer w = {.text = text, .size = size, .hash = UINT64_C(14695981039346656037)};
    int n_inputs = call->n_inputs;
    /* Under an epilogue, operands that the node leaves out follow as absent ones. */
    while (n_inputs > 0 && call->inputs[n_inputs - 1].dtype == LINNET_NONE) --n_inputs;
    put(&w, call->op->name);
    for (int i = 0; i < n_inputs; ++i) put_tensor(&w, &call->inputs[i]);
    put(&w, " >");
    for (int i = 0; i < call->n_outputs; ++i) put_tensor(&w, &call->outputs[i]);
    for (int i = 0; i < call->op->n_attributes; ++i) put_attribute(&w, ln_op_attribute(call->op, i), call->attributes);
    if (call->epilogue != NULL) put(&w, " epilogue");
    if (call->precision != LINNET_PRECISION_F32 && call->n_inputs > 0 && is_float(&call->inputs[0])) {
        /* Another precision permits other kernels than f32 does. */
        static const char names[][8] = {"f32", "f16", "bf16", "tf32", "direct"};
        put(&w, " precision=");
        put(&w, names[call->precision]);
    }
    if (size > 0) text[w.length < size ? w.length : size - 1] = 0;
    if (length != NULL) *length = w.length;
    return w.hash;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    uint64_t key;
    const ln_kernel *kernel; /* NULL: the slot is free */
} entry;

struct ln_tuning {
    entry *entries;
    size_t size;   /* a power of two */
    int lines;     /* number of lines that name a kernel */
    bool measured; /* `machine` has a rate from the file */
    struct ln_machine machine;
};

static entry *slot_of(const ln_tuning *t, uint64_t key) {
    size_t i = (size_t)key & (t->size - 1);
    while (t->entries[i].kernel != NULL && t->entries[i].key != key) i = (i + 1) & (t->size - 1);
    return &t->entries[i];
}

static const ln_kernel *named(const char *name, size_t length) {
    for (const ln_kernel *k = ln_kernels; k->code != NULL; ++k)
        if (strlen(k->name) == length && memcmp(k->name, name, length) == 0) return k;
    return NULL;
}

static linnet_status wrong(int line, const char *what, const char *expected, const char *got, size_t length,
                           linnet_error *error) {
    ln_fail(error, LINNET_CORRUPT, "line %d of the tuning file %s", line, what);
    ln_expected(error, "%s", expected);
    ln_got(error, "%.*s", (int)(length < 90 ? length : 90), got);
    return ln_hint(error, "delete the line, or write the file again with `linnet tune`");
}

static linnet_status check_header(int line, const char *text, size_t length, linnet_error *error) {
    static const char magic[] = "linnet-tuning ";
    const size_t used = sizeof magic - 1;
    if (length <= used || memcmp(text, magic, used) != 0)
        return wrong(line, "is not the header of a tuning file", "linnet-tuning 1 ...", text, length, error);
    if (text[used] == '1' && (length == used + 1 || text[used + 1] == ' ')) return LINNET_OK;
    ln_fail(error, LINNET_NEWER_FORMAT, "the tuning file has another format than this library reads");
    ln_expected(error, "linnet-tuning 1");
    ln_got(error, "%.*s", (int)(length < 90 ? length : 90), text);
    return ln_hint(error, "write the file again with the `linnet tune` of this version");
}

/* Moves both ends inwards past spaces. */
static void trim(const char **begin, const char **end) {
    while (*begin < *end && (**begin == ' ' || **begin == '\t')) ++*begin;
    while (*begin < *end && ((*end)[-1] == ' ' || (*end)[-1] == '\t' || (*end)[-1] == '\r')) --*end;
}

/* Reads the rate of a line "machine NAME = NUMBER". A rate of an instruction set of other processors has no effect. */
static linnet_status read_rate(ln_tuning *t, int line, const char *name, size_t length, const char *number,
                               const char *end, linnet_error *error) {
    char text[32] = "", *stop = text;
    const size_t n = (size_t)(end - number);
    if (n < sizeof text) memcpy(text, number, n);
    const double value = strtod(text, &stop);
    if (n == 0 || stop != text + n || !(value > 0 && value < 1e9))
        return wrong(line, "does not give a rate", "machine NAME = NUMBER, with a number above 0", number, n, error);
    t->measured = true;
    if (ln_machine_set(&t->machine, name, length, value) || memchr(name, ' ', length) != NULL) return LINNET_OK;
    return wrong(line, "gives a rate that does not exist",
                 "cache, shared, memory, step, fork, thread, or an instruction set and a rate", name, length, error);
}

/* Reads "KEY = KERNEL" into the table, or a rate. *unknown is the name of a kernel that does not exist here, and its
 * length. */
static linnet_status read_line(ln_tuning *t, int line, const char *begin, const char *end, const char **unknown,
                               linnet_error *error) {
    const char *sign = end;
    while (sign > begin + 2 && !(sign[-1] == ' ' && sign[-2] == '=' && sign[-3] == ' ')) --sign;
    if (sign <= begin + 3 || sign == end)
        return wrong(line, "does not name a kernel", "KEY = KERNEL", begin, (size_t)(end - begin), error);
    const char *last = sign - 3;
    trim(&begin, &last);
    static const char machine[] = "machine ";
    const size_t words = sizeof machine - 1;
    if ((size_t)(last - begin) > words && memcmp(begin, machine, words) == 0)
        return read_rate(t, line, begin + words, (size_t)(last - begin) - words, sign, end, error);
    ++t->lines;
    uint64_t key = UINT64_C(14695981039346656037);
    for (const char *c = begin; c < last; ++c) key = (key ^ (unsigned char)*c) * UINT64_C(1099511628211);
    const ln_kernel *kernel = named(sign, (size_t)(end - sign));
    if (kernel == NULL) {
        *unknown = sign;
        return LINNET_OK;
    }
    entry *e = slot_of(t, key);
    if (e->kernel != NULL)
        return wrong(line, "has the key of an earlier line", "each key once", begin, (size_t)(last - begin), error);
    *e = (entry){.key = key, .kernel = kernel};
    return LINNET_OK;
}

linnet_status ln_tuning_read(const char *text, ln_pool *pool, const ln_log_target *log, const ln_tuning **out,
                             const struct ln_machine **machine, linnet_error *error) {
    size_t lines = 1;
    for (const char *c = text; *c != 0; ++c) lines += *c == '\n';
    ln_tuning *t = ln_pool_alloc(pool, sizeof *t);
    if (t == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a plan");
    t->machine = **machine;
    for (t->size = 4; t->size < 2 * lines;) t->size *= 2;
    t->entries = ln_pool_array(pool, (int64_t)t->size, sizeof *t->entries);
    if (t->entries == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate a plan");
    bool header = false;
    int line = 0, missing = 0;
    char example[64] = "";
    for (const char *next = text; next != NULL;) {
        const char *begin = next, *end = strchr(next, '\n');
        next = end != NULL ? end + 1 : NULL;
        if (end == NULL) end = begin + strlen(begin);
        ++line;
        trim(&begin, &end);
        if (begin == end || *begin == '#') continue;
        const char *unknown = NULL;
        const linnet_status status = header ? read_line(t, line, begin, end, &unknown, error)
                                            : check_header(line, begin, (size_t)(end - begin), error);
        if (status != LINNET_OK) return status;
        header = true;
        if (unknown != NULL && missing++ == 0) snprintf(example, sizeof example, "%.*s", (int)(end - unknown), unknown);
    }
    if (!header) return wrong(line, "is the last, and there was no header", "linnet-tuning 1 ...", "", 0, error);
    if (missing > 0)
        ln_log(log, LINNET_LOG_WARNING,
               "%d of %d lines of the tuning file have no effect, because this build has no kernel of that name: %s%s",
               missing, t->lines, example, missing > 1 ? ", ..." : "");
    if (t->lines > 0) *out = t;
    if (t->measured) *machine = &t->machine;
    return LINNET_OK;
}

const ln_kernel *ln_tuning_find(const ln_tuning *tuning, const ln_call *call) {
    return tuning != NULL ? slot_of(tuning, ln_call_key(call, NULL, 0, NULL))->kernel : NULL;
}

const ln_kernel *ln_tuned_kernel(const ln_tuning *tuning, const ln_call *call, bool reference_only, double *ns) {
    const ln_kernel *kernel = ln_tuning_find(tuning, call);
    if (kernel != NULL && kernel->op == call->op->id &&
        ln_kernel_refusal(kernel, call, reference_only) == LINNET_REFUSAL_NONE) {
        if (ns != NULL) *ns = ln_kernel_cost(kernel, call);
        return kernel;
    }
    return ln_choose_kernel(call, reference_only, ns);
}

#endif
