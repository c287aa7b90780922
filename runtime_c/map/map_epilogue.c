/* map_epilogue.c - plans the map that is applied to the tiles of a heavy op's f32 result before they are stored
   (kernel/map.h). It decides whether the map fits, and how the map's operands correspond to the result.
   fast/gemm/epilogue.c applies it. */
#include "map/map_epilogue.h"

#include "base/layout.h"
#include "kernel/common/convert.h"
#include "kernel/common/requant.h"
#include "kernel/step.h"
#include "map/map_compile.h"
#include "map/map_shape.h"

#include <math.h>
#include <string.h>

#define MOST_INSTRUCTIONS 96 /* limits the stack that the strips of a program use */

static int kind_of(const ln_tensor *t, const ln_tensor *inner) {
    if (ln_count(t) == 1) return LN_EPILOGUE_SCALAR;
    if (t->rank > inner->rank) return LN_EPILOGUE_UNFIT;
    int shift = inner->rank - t->rank, axis = ln_inner_axis(inner) - shift;
    bool column = axis >= 0 && t->strides[axis] == 1, matrix = t->rank == inner->rank;
    for (int d = 0; d < t->rank; d++) {
        column = column && t->dims[d] == (d == axis ? inner->dims[d + shift] : 1);
        matrix = matrix && t->dims[d] == inner->dims[d] && (t->dims[d] == 1 || t->strides[d] == inner->strides[d]);
    }
    return matrix ? LN_EPILOGUE_MATRIX : column ? LN_EPILOGUE_COLUMN : LN_EPILOGUE_UNFIT;
}

/* Gives the scale and zero point of a tensor that has one of each. Returns false if it has several, or if the scale is
 * extreme. */
static bool per_tensor(const ln_tensor *t, float *scale, int32_t *zero) {
    const ln_quant *q = t->quant;
    int exponent;
    if ((t->dtype != LINNET_I8 && t->dtype != LINNET_U8) || q == NULL || q->scheme != LN_QUANT_TENSOR || q->count != 1)
        return false;
    *scale = q->scale[0], *zero = q->zero == NULL ? 0 : q->zero[0];
    return *scale > 0 && frexpf(*scale, &exponent) > 0 && exponent > -60 && exponent < 60;
}

/* Sets the fields for an approximation of the quotient. With their help, a kernel computes the exact quotient only
 * where the approximation is so near a tie that its rounding is in doubt. */
static bool approximate(ln_quantized_sum *r, bool added, int64_t low, int64_t high) {
    const double factor = (double)r->tile_scale / (double)r->y_scale;
    const double other = added ? (double)r->scale / (double)r->y_scale : 0;
    const int zero = r->zero - (r->dtype == LINNET_U8 ? 128 : 0);
    r->factor = (float)factor, r->other_factor = (float)other, r->constant = (float)(-zero * other);
    /* Each term is at most 510 times its factor. The rounding errors of the exact and of the approximate computation
     * together are less than 2600 * 2^-24 times the factors. */
    r->error = (float)((factor + other) / 4096);
    r->y_low = ln_round_clamp(r->low / r->y_scale, r->y_zero, (int32_t)low, (int32_t)high);
    r->y_high = ln_round_clamp(r->high / r->y_scale, r->y_zero, (int32_t)low, (int32_t)high);
    return factor + other < 64;
}

/* Recognizes the maps of an 8-bit result that kernels know: the result is dequantized, a dequantized 8-bit matrix may
 * be added, a clamp may follow, and the sum is quantized. r->input becomes the map's input that is added, or -1. */
static bool sum_of_bytes(const ln_map_attributes *map, const ln_tensor *inputs, int tile_input, const ln_tensor *inner,
                         const ln_tensor *output, ln_quantized_sum *r) {
    const int64_t n = map->program.n / LN_MAP_WORDS;
    int64_t tile = -1, other = -1, value = -1, low, high;
    bool added = false;
    *r = (ln_quantized_sum){
        .used = true, .input = -1, .tile = inner->dtype, .y_dtype = output->dtype, .low = -INFINITY, .high = INFINITY};
    int32_t tile_zero;
    if (!per_tensor(inner, &r->tile_scale, &tile_zero) || !per_tensor(output, &r->y_scale, &r->y_zero)) return false;
    for (int64_t k = 0; k < n; k++) {
        const int64_t *in = map->program.v + k * LN_MAP_WORDS;
        if (in[1] != LINNET_F32) return false;
        switch (in[0]) {
        case LN_MAP_CONST: break;
        case LN_MAP_LOAD_DEQUANTIZED:
            if (in[2] == tile_input) {
                if (tile >= 0 || added) return false;
                tile = value = k;
                break;
            }
            if (other >= 0 || kind_of(&inputs[in[2]], inner) != LN_EPILOGUE_MATRIX || ln_count(inner) == 1 ||
                !per_tensor(&inputs[in[2]], &r->scale, &r->zero))
                return false;
            other = k, r->input = (int)in[2], r->dtype = inputs[in[2]].dtype;
            break;
        case LN_MAP_ADD:
            if (added || !((in[2] == tile && in[3] == other) || (in[2] == other && in[3] == tile)) || value != tile)
                return false;
            added = true, value = k;
            break;
        case LN_MAP_MIN:
        case LN_MAP_MAX: {
            const int64_t *bound = map->program.v + in[3] * LN_MAP_WORDS;
            if (in[2] != value || bound[0] != LN_MAP_CONST || (other >= 0 && !added)) return false;
            const float c = (float)map->floats.v[bound[2]];
            if (!(c == c)) return false;
            if (in[0] == LN_MAP_MAX)
                r->low = c > r->low ? c : r->low, r->high = c > r->high ? c : r->high;
            else
                r->low = c < r->low ? c : r->low, r->high = c < r->high ? c : r->high;
            value = k;
            break;
        }
        case LN_MAP_STORE_QUANTIZED: {
            if (in[2] != value || value < 0 || k != n - 1 || (other >= 0) != added) return false;
            ln_quant_range(output->dtype, output->quant->bits, &low, &high);
            const float least = (float)(low - r->y_zero) * r->y_scale, most = (float)(high - r->y_zero) * r->y_scale;
            r->low = r->low < least ? least : r->low > most ? most : r->low;
            r->high = r->high < least ? least : r->high > most ? most : r->high;
            r->y_inverse = 1.0f / r->y_scale;
            return approximate(r, added, low, high);
        }
        default: return false;
        }
    }
    return false;
}

bool ln_epilogue_fits(const ln_map_attributes *map, const ln_tensor *inputs, int n_inputs, int tile_input,
                      const ln_tensor *inner, const ln_tensor *output) {
    int64_t n = map->program.n / LN_MAP_WORDS;
    int views = 0, stores = 0;
    if (n > MOST_INSTRUCTIONS || map->dtypes.n != 1 || inner->rank < 1 || n_inputs > LN_MAX_OPERANDS) return false;
    if (kind_of(output, inner) != LN_EPILOGUE_MATRIX && !(ln_count(output) == 1 && ln_count(inner) == 1)) return false;
    /* The rows of the matrix must follow each other without gaps: row r starts at r * columns. */
    int64_t columns = inner->dims[ln_inner_axis(inner)];
    if ((columns != 1 && inner->strides[ln_inner_axis(inner)] != 1) ||
        !(ln_is_dense(inner) || ln_is_channels_last(inner)))
        return false;
    for (int i = 0; i < n_inputs; i++) {
        if (i == tile_input || inputs[i].dtype == LINNET_NONE || !ln_map_broadcasts(map, i)) continue;
        if (kind_of(&inputs[i], inner) == LN_EPILOGUE_UNFIT) return false;
    }
    if (ln_is_byte(inner->dtype)) {
        ln_quantized_sum sum;
        return sum_of_bytes(map, inputs, tile_input, inner, output, &sum);
    }
    if (inner->dtype != LINNET_F32) return false;
    for (int64_t k = 0; k < n; k++) {
        const int64_t *in = map->program.v + k * LN_MAP_WORDS;
        switch (in[0]) {
        case LN_MAP_IOTA: return false;
        case LN_MAP_LOAD_DEQUANTIZED:
            if (in[2] == tile_input) return false;
            views++;
            break;
        case LN_MAP_TABLE:
            if (in[3] == tile_input) return false;
            views++;
            break;
        case LN_MAP_LOAD: views++; break;
        case LN_MAP_STORE:
        case LN_MAP_STORE_QUANTIZED:
            views += 2;
            stores++;
            break;
        default: break;
        }
    }
    ln_map_source source = {.map = map,
                            .inputs = inputs,
                            .n_inputs = n_inputs,
                            .outputs = output,
                            .n_outputs = 1,
                            .tile_input = tile_input,
                            .column_axis = ln_inner_axis(inner),
                            .most_bytes = LN_EPILOGUE_BYTES};
    return views <= LN_EPILOGUE_VIEWS && stores == 1 && ln_map_compilable(&source);
}

/* Returns operand i of the map. It must not be the operand that stands for the op's result. */
static const ln_tensor *extra(const ln_epilogue *e, const ln_call *call, int64_t i) {
    return &call->inputs[call->n_inputs + e->operand[i]];
}

/* Tells whether an operand of the map is a matrix like the result. */
static bool is_matrix(const ln_tensor *t, int dtype, const ln_call *call) {
    return t->dtype == dtype && ln_count(t) > 1 && kind_of(t, call->inner) == LN_EPILOGUE_MATRIX;
}

/* A clamp is a load, then min and max with constants on the right, then a store of f32. A residual may be added to the
 * loaded value before min and max. */
void ln_epilogue_describe(ln_epilogue *e, const ln_call *call) {
    const ln_tensor *output = &call->outputs[0];
    const int64_t *program = e->map->program.v;
    int64_t n = e->map->program.n / LN_MAP_WORDS, value = -1, residual = -1;
    bool added = false;
    e->low = -INFINITY;
    e->high = INFINITY;
    e->clamp_only = e->half_sum = false;
    e->residual = e->half_added = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t *in = program + k * LN_MAP_WORDS;
        if (in[1] != LINNET_F32) return;
        if (in[0] == LN_MAP_CONST) continue;
        if (in[0] == LN_MAP_LOAD) {
            if (in[2] != e->tile_input) {
                const ln_tensor *t = extra(e, call, in[2]);
                if (residual < 0 && is_matrix(t, output->dtype, call))
                    residual = k;
                else if (!t->data || ln_count(t) != 1)
                    return;
            } else if (value >= 0) {
                return;
            } else {
                value = k;
            }
            continue;
        }
        if (in[0] == LN_MAP_STORE) {
            const bool limits = in[2] == value && k == n - 1;
            const int other = limits && added ? call->n_inputs + e->operand[program[residual * LN_MAP_WORDS + 2]] : 0;
            if (output->dtype == LINNET_F32) {
                e->clamp_only = limits && residual < 0;
                e->residual = other;
            } else if (ln_is_half(output->dtype)) {
                e->half_sum = limits && added == (residual >= 0);
                e->half_added = other;
            }
            return;
        }
        if (in[0] == LN_MAP_ADD && !added && residual >= 0 && e->low == -INFINITY && e->high == INFINITY &&
            ((in[2] == value && in[3] == residual) || (in[2] == residual && in[3] == value))) {
            added = true;
            value = k;
            continue;
        }
        if ((in[0] != LN_MAP_MIN && in[0] != LN_MAP_MAX) || in[2] != value) return;
        const int64_t *bound = program + in[3] * LN_MAP_WORDS;
        float c = 0.0f;
        if (bound[0] == LN_MAP_CONST)
            c = (float)e->map->floats.v[bound[2]];
        else if (bound[0] == LN_MAP_LOAD && bound[2] != e->tile_input && in[3] != residual)
            c = (float)ln_load_f64(extra(e, call, bound[2])->data, extra(e, call, bound[2])->dtype, 0);
        else
            return;
        if (!(c == c)) return;
        if (in[0] == LN_MAP_MAX) {
            e->low = c > e->low ? c : e->low;
            e->high = c > e->high ? c : e->high;
        } else {
            e->low = c < e->low ? c : e->low;
            e->high = c < e->high ? c : e->high;
        }
        value = k;
    }
}

/* Returns the value of a register that holds a constant; NaN if the register holds no constant. */
static float constant_of(const ln_map_program *p, int register_) {
    float v = NAN;
    if (register_ >= p->n_slots && register_ < p->n_registers)
        memcpy(&v, p->constants + (size_t)(register_ - p->n_slots) * p->register_bytes, sizeof v);
    return v;
}

static bool is_small(int dtype) { return ln_is_byte(dtype) || dtype == LINNET_I16; }

/* Recognizes a residual addition of quantized graphs in the compiled program. A store turns NaN into the lowest stored
 * integer. A kernel that clamps to a higher limit would store that limit instead, so such a map is not recognized. */
static ln_quantized_sum quantized_sum(const ln_epilogue_plan *q, const ln_call *call) {
    static const ln_quantized_sum none;
    const ln_map_program *p = q->program;
    ln_quantized_sum r = {.low = -INFINITY, .high = INFINITY};
    int tile = -1, other = -1, sum = -1;
    int64_t lowest, highest;
    if (p->table != NULL || call->inner->quant != NULL) return none;
    for (int i = 0; i < p->n_steps; i++) {
        const ln_map_step *s = &p->steps[i];
        const ln_map_view *v = &p->views[s->view];
        if (s->type != LINNET_F32) return none;
        switch (s->code) {
        case LN_MAP_LOAD:
            if (q->kinds[s->view] == LN_EPILOGUE_TILE) {
                if (tile >= 0 || s->y == other) return none;
                tile = s->y;
                break;
            }
            /* fallthrough */
        case LN_MAP_LOAD_DEQUANTIZED:
            if (q->kinds[s->view] != LN_EPILOGUE_MATRIX || other >= 0 || sum >= 0 || s->y == tile ||
                (s->code == LN_MAP_LOAD ? v->dtype != LINNET_F32 : !is_small(v->dtype)))
                return none;
            other = s->y, r.input = q->inputs[s->view];
            r.dtype = v->dtype, r.zero = s->zero, r.scale = s->scale;
            break;
        case LN_MAP_ADD:
            if (sum >= 0 || !((s->a == tile && s->b == other) || (s->a == other && s->b == tile))) return none;
            sum = s->y;
            break;
        case LN_MAP_MIN:
        case LN_MAP_MAX: {
            const float c = constant_of(p, s->b);
            if (sum < 0 && other < 0) sum = tile; /* the program adds nothing to the op's result */
            if (sum < 0 || s->a != sum || !(c == c)) return none;
            sum = s->y;
            if (s->code == LN_MAP_MAX)
                r.low = c > r.low ? c : r.low, r.high = c > r.high ? c : r.high;
            else
                r.low = c < r.low ? c : r.low, r.high = c < r.high ? c : r.high;
            break;
        }
        case LN_MAP_STORE_QUANTIZED: {
            if (sum < 0 && other < 0) sum = tile;
            if (sum < 0 || s->a != sum || i != p->n_steps - 1 || !is_small(v->dtype) ||
                (s->how != LN_MAP_NEAREST && s->how != LN_MAP_PRODUCT))
                return none;
            const float unit = s->how == LN_MAP_NEAREST ? 1.0f : s->scale; /* a power of two */
            const float least = s->least * unit, most = s->most * unit;
            r.words = other < 0 || r.dtype == LINNET_I16 || v->dtype == LINNET_I16;
            /* With a lower limit above `least`, NaN would be stored as this limit (see above). That is allowed only
             * with `words`, and if the operand is not f32: then the sum is never NaN. */
            if (r.low > least && (!r.words || r.dtype == LINNET_F32)) return none;
            r.low = r.low < least ? least : r.low > most ? most : r.low;
            r.high = r.high < least ? least : r.high > most ? most : r.high;
            r.y_zero = s->zero, r.y_scale = s->scale, r.y_inverse = s->inverse, r.y_dtype = v->dtype;
            r.used = true, r.tile = LINNET_F32;
            ln_quant_range(v->dtype, 0, &lowest, &highest); /* the limits above are narrower */
            r.y_low = (int32_t)lowest, r.y_high = (int32_t)highest;
            return r;
        }
        default: return none;
        }
    }
    return none;
}

static linnet_status prepare(ln_epilogue *e, ln_call *call, ln_pool *temporary) {
    if (ln_is_byte(call->inner->dtype)) {
        ln_tensor tensors[LN_MAX_OPERANDS];
        for (int i = 0; i < e->n_inputs; i++) tensors[i] = i == e->tile_input ? *call->inner : *extra(e, call, i);
        if (!sum_of_bytes(e->map, tensors, e->tile_input, call->inner, call->outputs, &e->sum))
            return LINNET_UNSUPPORTED;
        e->sum.input = e->sum.input < 0 ? 0 : call->n_inputs + e->operand[e->sum.input];
        return LINNET_OK;
    }
    ln_tensor *inputs = ln_pool_array(temporary, e->n_inputs, sizeof *inputs);
    ln_epilogue_plan *q = ln_call_state(call, sizeof *q);
    if (!inputs || !q) return LINNET_OUT_OF_MEMORY;
    for (int i = 0; i < e->n_inputs; i++) inputs[i] = i == e->tile_input ? *call->inner : *extra(e, call, i);
    inputs[e->tile_input].dtype = LINNET_F32;
    inputs[e->tile_input].data = NULL;
    ln_map_source source = {.map = e->map,
                            .inputs = inputs,
                            .n_inputs = e->n_inputs,
                            .outputs = call->outputs,
                            .n_outputs = 1,
                            .tile_input = e->tile_input,
                            .column_axis = ln_inner_axis(call->inner),
                            .most_bytes = LN_EPILOGUE_BYTES};
    ln_map_program compiled;
    q->isa = ln_map_isa_for(call->features);
    linnet_status status = q->isa->find_activations != NULL ? q->isa->find_activations(&source, temporary) : LINNET_OK;
    if (status == LINNET_OK) status = ln_map_compile(&source, temporary, &compiled);
    if (status == LINNET_OK) status = ln_map_keep(&source, &compiled, call, &q->program);
    if (status) return status;
    ln_epilogue_describe(e, call);
    q->columns = call->inner->dims[ln_inner_axis(call->inner)];
    for (int i = 0; i < q->program->n_steps; i++) {
        const ln_map_step *s = &q->program->steps[i];
        const ln_map_view *v = &q->program->views[s->view];
        int at = s->view;
        if (s->code == LN_MAP_STORE || s->code == LN_MAP_STORE_QUANTIZED) {
            q->kinds[at] = LN_EPILOGUE_MATRIX;
            q->inputs[at] = -1;
        } else if (s->code == LN_MAP_TABLE) {
            q->kinds[at] = LN_EPILOGUE_FIXED;
            q->inputs[at] = (int16_t)(call->n_inputs + e->operand[v->operand]);
        } else if (s->code == LN_MAP_LOAD || s->code == LN_MAP_LOAD_DEQUANTIZED) {
            if (v->operand < 0) {
                q->kinds[at] = LN_EPILOGUE_COLUMN; /* one scale per channel */
                q->inputs[at] = -2;
            } else if (v->operand == e->tile_input) {
                q->kinds[at] = LN_EPILOGUE_TILE;
                q->inputs[at] = -2;
            } else {
                q->kinds[at] = (uint8_t)kind_of(&inputs[v->operand], call->inner);
                q->inputs[at] = (int16_t)(call->n_inputs + e->operand[v->operand]);
            }
        }
    }
    const ln_map_step *steps = q->program->steps;
    if (q->program->n_steps == 3 && q->kinds[steps[0].view] == LN_EPILOGUE_TILE && steps[1].a == steps[0].y &&
        steps[1].code == LN_MAP_ACTIVATION && steps[1].activation != 0 && steps[2].code == LN_MAP_STORE &&
        call->outputs[0].dtype == LINNET_F32)
        q->activation = &steps[1];
    e->program = q;
    e->sum = quantized_sum(q, call);
    return LINNET_OK;
}

linnet_status ln_epilogue_prepare(ln_epilogue *e, ln_call *call) {
    ln_pool temporary;
    ln_pool_init(&temporary, ln_call_memory(call));
    const linnet_status status = prepare(e, call, &temporary);
    ln_pool_free(&temporary);
    return status;
}
