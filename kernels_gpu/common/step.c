/* step.c - reads a step of a plan for the kernels of GPUs (kernels_gpu/common/gpu.h). */
#include "kernels_gpu/common/step.h"

#include <string.h>

bool lg_step_open(lg_step *out, const lg_machine *machine, const linnet_step *step) {
    const linnet_host *host = machine->host;
    const int n = host->step_input_count(step);
    /* The arrays of operands need not be cleared, because absent operands are not read. */
    memset(out, 0, offsetof(lg_step, inputs));
    out->step = step, out->machine = machine, out->op = host->step_op(step);
    out->n_outputs = host->step_output_count(step);
    out->has_map = out->has_epilogue = false;
    if (n > LG_MOST_OPERANDS || out->n_outputs > LG_MOST_OPERANDS || out->n_outputs < 1) return false;
    for (int i = 0; i < n; ++i) {
        linnet_device_tensor_init(&out->inputs[i]);
        if (host->step_get_input(step, i, &out->inputs[i]) != LINNET_OK) return false;
    }
    for (int i = 0; i < out->n_outputs; ++i) {
        linnet_device_tensor_init(&out->outputs[i]);
        if (host->step_get_output(step, i, &out->outputs[i]) != LINNET_OK) return false;
    }
    linnet_map_init(&out->map);
    out->has_map = host->step_get_map(step, &out->map) == LINNET_OK;
    out->is_conversion =
        strcmp(out->op, "cast") == 0 || strcmp(out->op, "quantize") == 0 || strcmp(out->op, "dequantize") == 0;
    out->has_epilogue = out->has_map && out->map.result >= 0;
    out->n_inputs = out->has_epilogue ? out->map.first : n;
    out->n_extra = n - out->n_inputs;
    while (out->n_inputs > 0 && out->n_extra == 0 && out->inputs[out->n_inputs - 1].dtype == LINNET_NONE)
        out->n_inputs--;
    out->result = out->outputs[0];
    if (out->is_conversion) {
        out->has_map = true;
        out->map.result = -1;
        out->map.input_count = out->n_inputs;
    }
    if (!out->has_epilogue) return true;
    linnet_device_tensor_init(&out->result);
    if (host->step_get_result(step, &out->result) != LINNET_OK) return false;
    /* The op's result is stored in place of the output, with the same layout. */
    const linnet_device_tensor *y = &out->outputs[0];
    if (lg_is_last(y)) {
        out->result.layout = y->layout;
        memcpy(out->result.strides, y->strides, sizeof y->strides);
    }
    return true;
}

int lg_items(const lg_step *s, const char *attribute) {
    int count = 0;
    return s->machine->host->step_integers(s->step, attribute, &count) != NULL ? count : 0;
}

int64_t lg_item(const lg_step *s, const char *attribute, int i, int64_t otherwise) {
    int count = 0;
    const int64_t *values = s->machine->host->step_integers(s->step, attribute, &count);
    return values != NULL && i < count ? values[i] : otherwise;
}

int64_t lg_integer(const lg_step *s, const char *attribute, int64_t otherwise) {
    return lg_item(s, attribute, 0, otherwise);
}

double lg_real(const lg_step *s, const char *attribute, double otherwise) {
    int count = 0;
    const double *values = s->machine->host->step_floats(s->step, attribute, &count);
    return values != NULL && count > 0 ? values[0] : otherwise;
}

int64_t lg_shape_product(const linnet_device_tensor *t, int from, int to) {
    int64_t product = 1;
    for (int d = from; d < to; ++d) product *= t->shape[d];
    return product;
}

int64_t lg_count(const linnet_device_tensor *t) { return lg_shape_product(t, 0, t->rank); }

bool lg_absent(const lg_step *s, int input) { return input >= s->n_inputs || s->inputs[input].dtype == LINNET_NONE; }

bool lg_wanted(const lg_step *s, int output) {
    return output < s->n_outputs && s->outputs[output].dtype != LINNET_NONE;
}

bool lg_same_shape(const linnet_device_tensor *a, const linnet_device_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

bool lg_converts_sums(const lg_step *s) {
    return s->n_inputs >= 2 && lg_is_quantizable(s->inputs[0].dtype) && lg_is_quantizable(s->inputs[1].dtype) &&
           (strcmp(s->op, "conv") == 0 || strcmp(s->op, "conv_transpose") == 0 || strcmp(s->op, "matmul") == 0);
}

int lg_axis(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); }

static const struct {
    const char *type, *word;
    int bytes;
} dtypes[] = {
    [LINNET_F32] = {"float", "f32", 4},  [LINNET_F16] = {"ln_u16", "f16", 2}, [LINNET_BF16] = {"ln_u16", "bf16", 2},
    [LINNET_F64] = {"double", "f64", 8}, [LINNET_I8] = {"ln_i8", "i8", 1},    [LINNET_I16] = {"ln_i16", "i16", 2},
    [LINNET_I32] = {"ln_i32", "i32", 4}, [LINNET_I64] = {"ln_i64", "i64", 8}, [LINNET_U8] = {"ln_u8", "u8", 1},
    [LINNET_U16] = {"ln_u16", "u16", 2}, [LINNET_U32] = {"ln_u32", "u32", 4}, [LINNET_U64] = {"ln_u64", "u64", 8},
    [LINNET_BOOL] = {"ln_u8", "bool", 1}};

static bool is_known(int dtype) {
    return dtype > 0 && dtype < (int)(sizeof dtypes / sizeof *dtypes) && dtypes[dtype].type != NULL;
}
int lg_bytes_of(int dtype) { return is_known(dtype) ? dtypes[dtype].bytes : 0; }
const char *lg_type_of(int dtype) { return is_known(dtype) ? dtypes[dtype].type : NULL; }
const char *lg_word_of(int dtype) {
    return is_known(dtype)      ? dtypes[dtype].word
           : dtype == LINNET_I4 ? "i4" /* two elements share a byte; most kernels cannot read i4 */
           : dtype == LINNET_U4 ? "u4"
                                : "none";
}
