/* map.c - shape rule and reference kernel of `map`: interprets the program element by element in plain C.
 * The fast interpreter works on strips (map/map_compile.c, map/map_strip.inc.c). */
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/infer.h"
#include "map/map_program.h"
#include "map/map_scalar.h"
#include "map/map_shape.h"
#include "simd/math.h"

linnet_status ln_infer_map(const ln_infer *infer) {
    const ln_map_attributes *map = infer->attributes;
    ln_tensor shape;
    memset(&shape, 0, sizeof shape);
    if (map->shape.n > LN_MAX_RANK || map->dtypes.n != infer->n_outputs) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "map: `shape` or `dtypes` has the wrong length");
        return ln_expected(infer->error, "at most %d dimensions, and one dtype per output", LN_MAX_RANK),
               LINNET_BAD_ATTRIBUTE;
    }
    shape.rank = (int8_t)map->shape.n;
    for (int64_t d = 0; d < map->shape.n; d++) shape.dims[d] = map->shape.v[d];
    for (int i = 0; i < infer->n_inputs; i++) {
        if (infer->inputs[i].dtype == LINNET_NONE || !ln_map_broadcasts(map, i)) continue;
        linnet_status status = ln_broadcast(&shape, &infer->inputs[i], &shape, infer->error);
        if (status) return status;
    }
    for (int i = 0; i < infer->n_outputs; i++) {
        ln_same_shape(&shape, &infer->outputs[i]);
        infer->outputs[i].dtype = (uint8_t)map->dtypes.v[i];
    }
    return LINNET_OK;
}

void ln_count_map(const ln_call *call, ln_counts *counts) {
    counts->work[LN_RATE_MAP] += ln_map_operations(call->attributes) * (double)ln_count(&call->outputs[0]);
    for (int i = 0; i < call->n_inputs + call->n_outputs; i++) { /* numbers of up to 16 bits are converted when they are
                                                                    read and written */
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (ln_dtype_bits(t->dtype) > 16) continue;
        counts->work[LN_RATE_MAP] += (ln_dtype_is_float(t->dtype) ? 3 : 0.7) * (double)ln_max(ln_count(t), 0);
    }
}

typedef union cell {
    float f;
    double d;
    int32_t i;
    int64_t l;
} cell;

static bool can(const ln_call *call) { return call->n_outputs > 0; }

static linnet_status configure(ln_call *call) {
    const ln_map_attributes *map = call->attributes;
    call->work[0] = ln_count(&call->outputs[0]);
    call->grain = 2048;
    call->scratch_thread = (size_t)(map->program.n / LN_MAP_WORDS) * sizeof(cell);
    return LINNET_OK;
}

static cell load(const void *data, int dtype, int64_t at, int type) {
    cell y = {.l = 0};
    switch (type) {
    case LINNET_F32: ln_convert_element(&y.f, LINNET_F32, 0, data, dtype, at); break;
    case LINNET_F64: ln_convert_element(&y.d, LINNET_F64, 0, data, dtype, at); break;
    case LINNET_I32: ln_convert_element(&y.i, LINNET_I32, 0, data, dtype, at); break;
    default: ln_convert_element(&y.l, LINNET_I64, 0, data, dtype, at); break;
    }
    return y;
}

/* Returns the number of the scale for the element at `coordinates` of t, whose quantization is per tensor or per axis.
   The axis is one of t's own shape. */
static int64_t quant_entry(const ln_tensor *t, const int64_t *coordinates, int rank) {
    if (t->quant->scheme != LN_QUANT_AXIS) return 0;
    int axis = ln_axis(t->quant->axis, t->rank);
    return axis < 0 || t->dims[axis] == 1 ? 0 : coordinates[rank - t->rank + axis];
}

static void store_quantized(void *data, const ln_tensor *t, int64_t at, int64_t entry, float v) {
    int64_t low, high, zero = t->quant->zero ? t->quant->zero[entry] : 0;
    ln_quant_range(t->dtype, t->quant->bits, &low, &high);
    ln_store_wrapped(data, t->dtype, at, ln_quantize_f(v, t->quant->scale[entry], zero, low, high));
}

/* Returns the register that a word of an instruction names. Unary opcodes do not use words 3 and 4, and binary opcodes
 * do not use word 4. An unused word that is out of range gives register 0. */
static const cell *argument(const cell *r, int64_t count, int64_t word) {
    return &r[word >= 0 && word < count ? word : 0];
}

static cell compute(const int64_t *in, const cell *r, int64_t count, int a_type) {
    cell y = {.l = 0};
    ln_map_step step = {.code = (uint8_t)in[0], .type = (uint8_t)in[1], .from = (uint8_t)a_type};
    ln_map_arithmetic(&step, 1, &r[in[2]], argument(r, count, in[3]), argument(r, count, in[4]), &y);
    return y;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    const ln_map_attributes *map = call->attributes;
    const ln_tensor *shape = &call->outputs[0];
    const int64_t *program = map->program.v;
    int64_t count = map->program.n / LN_MAP_WORDS, coordinates[LN_MAX_RANK];
    cell *r = (cell *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    for (int64_t element = begin; element < end; element++) {
        int64_t rest = element;
        for (int d = shape->rank - 1; d >= 0; d--) {
            coordinates[d] = rest % shape->dims[d];
            rest /= shape->dims[d];
        }
        /* An output may share its memory with an input, so every load comes before the first store. */
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t k = 0; k < count; k++) {
                const int64_t *in = program + k * LN_MAP_WORDS;
                bool is_store = in[0] == LN_MAP_STORE || in[0] == LN_MAP_STORE_QUANTIZED;
                if (is_store != (pass == 1)) continue;
                const ln_tensor *t;
                int64_t at;
                switch (in[0]) {
                case LN_MAP_LOAD:
                case LN_MAP_LOAD_DEQUANTIZED:
                    t = &call->inputs[in[2]];
                    at = ln_offset_broadcast(t, shape->dims, shape->rank, element);
                    if (in[0] == LN_MAP_LOAD) {
                        r[k] = load(b->inputs[in[2]], t->dtype, at, (int)in[1]);
                    } else {
                        int64_t entry = quant_entry(t, coordinates, shape->rank);
                        int64_t stored = ln_load_i64(b->inputs[in[2]], t->dtype, at);
                        int64_t zero = t->quant->zero ? t->quant->zero[entry] : 0;
                        r[k].f = (float)(int32_t)(stored - zero) * t->quant->scale[entry];
                    }
                    break;
                case LN_MAP_STORE:
                    t = &call->outputs[in[3]];
                    if (b->outputs[in[3]])
                        ln_convert_element(b->outputs[in[3]], t->dtype, ln_offset_of(t, element), &r[in[2]],
                                           ln_map_result_type(program + in[2] * LN_MAP_WORDS), 0);
                    break;
                case LN_MAP_STORE_QUANTIZED:
                    t = &call->outputs[in[3]];
                    if (b->outputs[in[3]])
                        store_quantized(b->outputs[in[3]], t, ln_offset_of(t, element),
                                        quant_entry(t, coordinates, shape->rank), r[in[2]].f);
                    break;
                case LN_MAP_CONST:
                    if (in[1] == LINNET_F32)
                        r[k].f = (float)map->floats.v[in[2]];
                    else if (in[1] == LINNET_F64)
                        r[k].d = map->floats.v[in[2]];
                    else if (in[1] == LINNET_I32)
                        r[k].i = (int32_t)map->integers.v[in[2]];
                    else
                        r[k].l = map->integers.v[in[2]];
                    break;
                case LN_MAP_IOTA: r[k] = load(&coordinates[in[2]], LINNET_I64, 0, (int)in[1]); break;
                case LN_MAP_FIXED_MULTIPLY:
                    r[k].i = ln_map_fixed_multiply(r[in[2]].i, (int32_t)map->integers.v[in[3]],
                                                   (int32_t)map->integers.v[in[4]]);
                    break;
                case LN_MAP_FIXED_MULTIPLY_SINGLE:
                    r[k].i = ln_map_fixed_multiply_single(r[in[2]].i, (int32_t)map->integers.v[in[3]],
                                                          (int32_t)map->integers.v[in[4]]);
                    break;
                case LN_MAP_TABLE:
                    t = &call->inputs[in[3]];
                    at = ln_min(ln_max(r[in[2]].i, 0), t->dims[0] - 1);
                    r[k] = load(b->inputs[in[3]], t->dtype, at * t->strides[0], (int)in[1]);
                    break;
                default: r[k] = compute(in, r, count, ln_map_result_type(program + in[2] * LN_MAP_WORDS)); break;
                }
            }
        }
    }
    return LINNET_OK;
}

/* The reference is slow, because it decodes every instruction again for every element. */
static void reference_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel, (void)call;
    ln_scale_operations(counts, 10);
}

const ln_kernel_code ln_reference_map = {.cost = reference_cost, .can = can, .configure = configure, .run = run};
