/* train_data.c - assigns files to inputs, checks that they fit, and fills batches. Bytes and integers of a file are
 * converted to the dtype of the input if the conversion loses nothing. */
#include "train_data.h"

#include "train_array.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

/* ---- finding the arrays ----------------------------------------------------------------------------------------- */

static data_input *find_input(dataset *d, const char *name) {
    for (int i = 0; i < d->n; i++)
        if (!strcmp(d->inputs[i].info.name, name)) return &d->inputs[i];
    return NULL;
}

static int no_input(const dataset *d, const char *option, const char *name) {
    return tool_fail(d->tool,
                     "%s: the signature has no input '%s'; it has %d inputs, the first is '%s'; `linnet inspect` "
                     "lists them",
                     option, name, d->n, d->n ? d->inputs[0].info.name : "");
}

/* Takes one NAME=FILE of --data. */
static int take_pair(dataset *d, char *name, const char *path) {
    char problem[512];
    data_input *input = find_input(d, name);
    if (!input) return no_input(d, d->option, name);
    if (input->array.path) return tool_usage(d->tool, "%s: input '%s' is given twice", d->option, name);
    if (array_open(path, NULL, &input->array, problem, sizeof problem)) return TOOL_OK;
    return tool_fail(d->tool, "%s: %s; give a .npy or idx file", path, problem);
}

/* Finds the comma before the next NAME= in x=FILE,t=FILE. File names may contain commas; names of inputs rarely do. */
static char *next_pair(char *text) {
    for (char *comma = strchr(text, ','); comma; comma = strchr(comma + 1, ',')) {
        const char *end = strpbrk(comma + 1, ",=");
        if (end && *end == '=' && end > comma + 1) return comma;
    }
    return NULL;
}

static int take_file(dataset *d, char *text) {
    char problem[512], *value;
    if (array_is_npz(text)) {
        for (int i = 0; i < d->n; i++) {
            data_input *input = &d->inputs[i];
            if (input->given || input->array.path) continue;
            if (!array_open(text, input->info.name, &input->array, problem, sizeof problem)) {
                input->array.path = NULL;
                if (input->info.rank == 0) continue; /* a scalar may come from --set */
                return tool_fail(d->tool, "%s: input '%s': %s; save the arrays with numpy.savez", text,
                                 input->info.name, problem);
            }
        }
        return TOOL_OK;
    }
    while (text) {
        char *rest = next_pair(text);
        int status;
        if (rest) *rest++ = 0;
        value = strchr(text, '=');
        if (!value || value == text || !value[1])
            return tool_usage(d->tool, "%s: expected an .npz file or NAME=FILE, got '%s'%s", d->option, text,
                              value ? "" : ", which is not a readable .npz file");
        *value = 0;
        if ((status = take_pair(d, text, value + 1))) return status;
        text = rest;
    }
    return TOOL_OK;
}

static bool is_named(const char *pair, const char *name) {
    const size_t length = strlen(name);
    return !strncmp(pair, name, length) && pair[length] == '=';
}

/* Parses a number such as 0.5 or 1/255. */
static bool fraction(const char *text, double *value) {
    char *end;
    double divisor = 1;
    *value = strtod(text, &end);
    if (end != text && *end == '/') divisor = strtod(text = end + 1, &end);
    if (end == text || *end || divisor == 0) return false;
    *value /= divisor;
    return true;
}

static int take_numbers(dataset *d, const data_options *o) {
    for (int i = 0; i < d->n; i++) {
        data_input *input = &d->inputs[i];
        double value;
        for (int s = 0; s < o->n_sets; s++)
            if (is_named(o->sets[s], input->info.name)) input->given = strchr(o->sets[s], '=') + 1;
        for (int s = 0; s < o->n_scales; s++)
            if (is_named(o->scales[s], input->info.name) &&
                (!fraction(strchr(o->scales[s], '=') + 1, &input->scale) || input->scale == 0))
                return tool_usage(d->tool, "--scale: expected NAME=NUMBER, such as x=1/255, got '%s'", o->scales[s]);
        if (!input->given) continue;
        if (input->info.rank != 0 || input->info.dtype == LINNET_F16 || input->info.dtype == LINNET_BF16)
            return tool_fail(
                d->tool, "--set cannot give input '%s': it has dimensions, or its dtype is f16 or bf16; give an array",
                input->info.name);
        if (!fraction(input->given, &value))
            return tool_usage(d->tool, "--set: expected %s=NUMBER, got '%s'", input->info.name, input->given);
    }
    return TOOL_OK;
}

/* ---- checking shapes and dtypes --------------------------------------------------------------------------------- */

static bool is_float(int dtype) { return dtype >= LINNET_F32 && dtype <= LINNET_F64; }

/* Tells whether the array's dtype can be converted to the input's dtype: either both are equal, or the file has
 * integers. Each integer is checked when it is read. */
static bool converts(const data_input *input) {
    const int from = input->array.head.dtype, to = input->info.dtype;
    if (from == to || (to == LINNET_BF16 && from == LINNET_U16)) return input->scale == 1 || !is_float(to);
    return !is_float(from) && from != LINNET_U64 && to != LINNET_F16 && to != LINNET_BF16 && to != LINNET_BOOL &&
           linnet_dtype_size(to) > 0;
}

/* Stores the sizes of one example, except sizes of 1. Returns the number of stored sizes. */
static int sizes(const long long *dims, int n, long long *out) {
    int count = 0;
    for (int i = 0; i < n; i++)
        if (dims[i] != 1) out[count++] = dims[i];
    return count;
}

/* Tells whether an example of the array fits the input: it has the same sizes, or it is flat with the same number of
 * elements. */
static bool fits(const data_input *input) {
    const linnet_tensor_info *info = &input->info;
    const npy_array *array = &input->array.head;
    long long declared[LINNET_MAX_RANK], a[LINNET_MAX_RANK], b[LINNET_MAX_RANK], all_a = 1, all_b = 1;
    int n, m;
    if (info->rank <= 0) return info->rank < 0 ? array->rank > 0 : array->rank == 0;
    if (array->rank < 1) return false;
    if (array->rank == info->rank) {
        bool same = true;
        for (int i = 1; i < info->rank; i++) same = same && (info->shape[i] < 0 || info->shape[i] == array->shape[i]);
        if (same) return true;
    }
    for (int i = 1; i < info->rank; i++)
        if ((declared[i - 1] = info->shape[i]) < 0) return false;
    n = sizes(declared, info->rank - 1, a);
    m = sizes(array->shape + 1, array->rank - 1, b);
    for (int i = 0; i < n; i++) all_a *= a[i];
    for (int i = 0; i < m; i++) all_b *= b[i];
    return all_a == all_b && (n <= 1 || m <= 1 || (n == m && !memcmp(a, b, (size_t)n * sizeof *a)));
}

static const char *array_text(const npy_array *array, char *text, size_t size) {
    linnet_tensor_info given = {.dtype = array->dtype, .rank = array->rank};
    for (int i = 0; i < array->rank; i++) given.shape[i] = array->shape[i];
    return tool_tensor_text(&given, text, size);
}

static int check_input(dataset *d, const data_input *input) {
    const array_file *array = &input->array;
    char text[128], other[128];
    const char *name = input->info.name;
    tool_tensor_text(&input->info, text, sizeof text);
    if (input->given) return TOOL_OK;
    if (!array->path && input->info.rank == 0)
        return tool_fail(d->tool, "input '%s' (%s) was not given; give --set %s=NUMBER", name, text, name);
    if (!array->path)
        return tool_fail(d->tool, "input '%s' (%s) was not given; give %s %s=FILE", name, text, d->option, name);
    array_text(&array->head, other, sizeof other);
    if (!converts(input) && is_float(array->head.dtype) && array->head.dtype == input->info.dtype)
        return tool_fail(d->tool,
                         "--scale: %s holds %s, and only integers are scaled; scale the values when you write the file",
                         array->path, linnet_dtype_name(array->head.dtype));
    if (!converts(input))
        return tool_fail(d->tool, "input '%s': expected %s, got %s in %s; save the array as %s", name, text, other,
                         array->path, linnet_dtype_name(input->info.dtype));
    if (!fits(input))
        return tool_fail(d->tool,
                         "input '%s': expected %s, got %s in %s. The first dimension of the array counts examples; the "
                         "others must match the input",
                         name, text, other, array->path);
    if (array->head.dtype == LINNET_U8 && is_float(input->info.dtype) && input->scale == 1)
        fprintf(
            stderr,
            "%s: note: the bytes of %s become floats from 0 to 255 for input '%s'; --scale %s=1/255 makes them 0 to "
            "1, if the model expects that\n",
            d->tool, array->path, name, name);
    return TOOL_OK;
}

static int check(dataset *d) {
    const data_input *first = NULL;
    for (int i = 0; i < d->n; i++) {
        const data_input *input = &d->inputs[i];
        const int status = check_input(d, input);
        if (status) return status;
        if (input->given || input->array.head.rank == 0) continue;
        if (!first) first = input;
        if (input->array.rows != first->array.rows)
            return tool_fail(
                d->tool,
                "%s holds %lld examples of input '%s', but %s holds %lld of '%s'; give files with the same examples",
                first->array.path, first->array.rows, first->info.name, input->array.path, input->array.rows,
                input->info.name);
        if ((size_t)input->array.row_bytes > d->row_bytes) d->row_bytes = (size_t)input->array.row_bytes;
    }
    d->rows = first ? first->array.rows : 0;
    if (!first)
        return tool_fail(d->tool,
                         "the signature has no input that takes examples; leave the first dimension of an input open");
    if (!d->rows) return tool_fail(d->tool, "%s holds no examples; give a file with at least one", first->array.path);
    d->row = malloc(d->row_bytes ? d->row_bytes : 1);
    return d->row
               ? TOOL_OK
               : tool_fail(d->tool, "cannot allocate %zu bytes for one example; give smaller examples", d->row_bytes);
}

int data_open(dataset *d, const char *option, const data_options *options, const linnet_model *model, int signature) {
    const char *tool = d->tool;
    int status;
    *d = (dataset){.tool = tool, .option = option, .n = linnet_model_input_count(model, signature)};
    if (d->n > MOST_INPUTS)
        return tool_fail(
            tool, "the signature has %d inputs; linnet-train supports at most %d; join some of them in the model", d->n,
            MOST_INPUTS);
    for (int i = 0; i < d->n; i++) {
        d->inputs[i] = (data_input){.scale = 1, .array = {.file = -1}};
        linnet_tensor_info_init(&d->inputs[i].info);
        linnet_model_get_input(model, signature, i, &d->inputs[i].info);
    }
    status = take_numbers(d, options);
    for (int i = 0; i < options->n_files && status == TOOL_OK; i++) status = take_file(d, options->files[i]);
    return status == TOOL_OK ? check(d) : status;
}

void data_close(dataset *d) {
    for (int i = 0; i < d->n; i++) array_close(&d->inputs[i].array);
    free(d->row);
    d->n = 0;
    d->row = NULL;
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

static bool is_batched(const data_input *input) { return !input->given && input->array.head.rank > 0; }

long long data_fixed_batch(const dataset *d) {
    for (int i = 0; i < d->n; i++)
        if (is_batched(&d->inputs[i]) && d->inputs[i].info.rank > 0 && d->inputs[i].info.shape[0] >= 0)
            return d->inputs[i].info.shape[0];
    return 0;
}

int data_shapes(const dataset *d, long long batch, linnet_shape shapes[MOST_INPUTS]) {
    int count = 0;
    for (int i = 0; i < d->n; i++) {
        const data_input *input = &d->inputs[i];
        const npy_array *array = &input->array.head;
        linnet_shape *shape = &shapes[count];
        if (!is_batched(input) || input->info.bytes) continue;
        shape->input = input->info.name;
        shape->rank = input->info.rank < 0 ? array->rank : input->info.rank;
        shape->dims[0] = batch;
        for (int k = 1; k < shape->rank; k++) {
            const int64_t known = input->info.rank < 0 ? -1 : input->info.shape[k];
            shape->dims[k] = known < 0 ? array->shape[k] : known;
        }
        count++;
    }
    return count;
}

static int64_t load(const unsigned char *p, int dtype) {
    switch (dtype) {
    case LINNET_I8: return (int8_t)*p;
    case LINNET_I16: {
        int16_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    case LINNET_U16: {
        uint16_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    case LINNET_I32: {
        int32_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    case LINNET_U32: {
        uint32_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    case LINNET_I64: {
        int64_t v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    default: return *p; /* u8, bool */
    }
}

/* Returns false if `value` does not fit the dtype. */
static bool store(unsigned char *to, int dtype, int64_t value, double scale) {
    if (dtype == LINNET_F32) {
        const float f = (float)value * (float)scale; /* the same rounding as in `linnet train` */
        memcpy(to, &f, sizeof f);
        return scale != 1 || (value >= -(1 << 24) && value <= 1 << 24);
    }
    if (dtype == LINNET_F64) {
        const double f = (double)value * scale;
        memcpy(to, &f, sizeof f);
        return true;
    }
    const int bits = 8 * (int)linnet_dtype_size(dtype), sign = dtype >= LINNET_I8 && dtype <= LINNET_I64;
    memcpy(to, &value, linnet_dtype_size(dtype)); /* little endian */
    if (bits == 64) return sign || value >= 0;
    return sign ? value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1)
                : value >= 0 && value < (int64_t)1 << bits;
}

static int convert(const dataset *d, const data_input *input, long long row, unsigned char *to) {
    const int from = input->array.head.dtype, into = input->info.dtype;
    const size_t width = linnet_dtype_size(from), step = linnet_dtype_size(into);
    const unsigned char *p = d->row;
    const long long count = input->array.row_bytes / (long long)width;
    if (from == LINNET_U8 && into == LINNET_F32) {
        const float scale = (float)input->scale;
        for (long long i = 0; i < count; i++) {
            const float f = (float)p[i] * scale;
            memcpy(to + 4 * i, &f, 4);
        }
        return TOOL_OK;
    }
    for (long long i = 0; i < count; i++, p += width, to += step)
        if (!store(to, into, load(p, from), input->scale))
            return tool_fail(d->tool,
                             "%s: row %lld holds %lld, which does not fit the dtype %s of input '%s'; "
                             "correct the file, or widen the input",
                             input->array.path, row, (long long)load(p, from), linnet_dtype_name(into),
                             input->info.name);
    return TOOL_OK;
}

static int fill_row(const dataset *d, const data_input *input, long long row, unsigned char *to) {
    const int from = input->array.head.dtype, into = input->info.dtype;
    char problem[256];
    const bool as_it_is = from == into || into == LINNET_BF16;
    if (!array_read(&input->array, row, as_it_is ? to : d->row, problem, sizeof problem))
        return tool_fail(d->tool, "%s: %s; check that the file has not changed", input->array.path, problem);
    return as_it_is ? TOOL_OK : convert(d, input, row, to);
}

static void set_number(const data_input *input, unsigned char *to) {
    double value = 0;
    fraction(input->given, &value);
    if (is_float(input->info.dtype)) {
        const float f = (float)value;
        memcpy(to, input->info.dtype == LINNET_F32 ? (const void *)&f : &value, linnet_dtype_size(input->info.dtype));
    } else {
        store(to, input->info.dtype, (int64_t)value, 1);
    }
}

int data_fill(const dataset *d, const linnet_plan *plan, linnet_session *session, const long long *rows,
              long long count) {
    for (int i = 0; i < linnet_plan_input_count(plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        const data_input *input = NULL;
        unsigned char *to = linnet_session_input(session, i);
        linnet_plan_get_input(plan, i, &info);
        for (int k = 0; k < d->n; k++)
            if (!strcmp(d->inputs[k].info.name, info.name)) input = &d->inputs[k];
        if (!input) continue;
        if (input->given) {
            set_number(input, to);
            continue;
        }
        const long long n = is_batched(input) ? count : 1;
        for (long long r = 0; r < n; r++) {
            const int status =
                fill_row(d, input, is_batched(input) ? rows[r] : 0, to + (size_t)r * (info.bytes / (size_t)n));
            if (status) return status;
        }
    }
    return TOOL_OK;
}
