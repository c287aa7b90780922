/* map_compile.c - compiles a map program for the strip interpreter: views of the operands, registers by liveness,
 * constants filled once, loads and stores that need no copy. Runs at plan time, after the program was verified. */
#include "ops/convert.h"
#include "ops/index.h"
#include "ops/map_shape.h"
#include "simd/map_program.h"

#include <math.h>

#include <string.h>

typedef struct compiler {
    const ln_map_source *source;
    int64_t n;         /* instructions */
    int32_t *reg;      /* register of each instruction's value; -1 none */
    int64_t *last;     /* last instruction that reads it; stores count as n + their number */
    int32_t *constant; /* instructions that are constants: their number, else -1 */
    int rank;          /* iteration: axes in the order of the output's memory, without those of size 1 */
    int axes[LN_MAX_RANK];
    int32_t *slot_free; /* stack of free slots */
    int n_free, n_slots;
} compiler;

static const int64_t *instruction(const compiler *c, int64_t k) { return c->source->map->program.v + k * LN_MAP_WORDS; }

static bool is_load(int64_t opcode) { return opcode == LN_MAP_LOAD || opcode == LN_MAP_LOAD_DEQUANTIZED; }
static bool is_store(int64_t opcode) { return opcode == LN_MAP_STORE || opcode == LN_MAP_STORE_QUANTIZED; }

/* Number of operands that are registers. */
static int arity(const int64_t *in) { return ln_map_opcodes[in[0]].arity; }

static bool is_wide(int type) { return type == LINNET_F64 || type == LINNET_I64; }

/* A quantization that the strips can apply: zero the same for all entries. */
static bool plain_quant(const ln_quant *q) {
    for (uint32_t i = 1; q->zero && i < q->count; i++)
        if (q->zero[i] != q->zero[0]) return false;
    return q->count > 0 && q->scheme != LN_QUANT_BLOCK;
}

static bool per_axis(const ln_tensor *t) { return t->quant->scheme == LN_QUANT_AXIS && t->quant->count > 1; }

bool ln_map_compilable(const ln_map_source *s) {
    int64_t n = s->map->program.n / LN_MAP_WORDS;
    for (int64_t k = 0; k < n; k++) {
        const int64_t *in = s->map->program.v + k * LN_MAP_WORDS;
        if (in[0] == LN_MAP_LOAD_DEQUANTIZED) {
            const ln_tensor *t = &s->inputs[in[2]];
            if (!t->quant || !plain_quant(t->quant) || (per_axis(t) && s->tile_input >= 0)) return false;
        } else if (in[0] == LN_MAP_STORE_QUANTIZED) {
            const ln_tensor *t = &s->outputs[in[3]];
            if (!t->quant || !plain_quant(t->quant) || ln_dtype_size(t->dtype) > 2) return false;
            if (per_axis(t) && s->tile_input >= 0 && ln_axis(t->quant->axis, t->rank) != s->column_axis) return false;
        }
    }
    return true;
}

/* ---- views ---- */

/* Iteration order: by the first output's strides, greatest first, so that inner loops run along memory. */
static void order_axes(compiler *c) {
    const ln_tensor *y = &c->source->outputs[0];
    c->rank = 0;
    for (int d = 0; d < y->rank; d++)
        if (y->dims[d] != 1) c->axes[c->rank++] = d;
    for (int i = 1; i < c->rank; i++) {
        for (int j = i; j > 0; j--) {
            int64_t a = y->strides[c->axes[j - 1]], b = y->strides[c->axes[j]];
            if ((a < 0 ? -a : a) >= (b < 0 ? -b : b)) break;
            int t = c->axes[j];
            c->axes[j] = c->axes[j - 1];
            c->axes[j - 1] = t;
        }
    }
}

/* A view from one stride per axis of the iteration shape (full rank, broadcast axes 0). */
static void make_view(const compiler *c, ln_map_view *v, const int64_t *strides) {
    const ln_tensor *y = &c->source->outputs[0];
    int n = 0;
    for (int i = 0; i < c->rank; i++) {
        int64_t size = y->dims[c->axes[i]], stride = strides[c->axes[i]];
        if (n > 0 && v->strides[n - 1] == stride * size) {
            v->dims[n - 1] *= size;
            v->strides[n - 1] = stride;
        } else {
            v->dims[n] = size;
            v->strides[n++] = stride;
        }
    }
    if (n == 0) {
        v->dims[0] = 1;
        v->strides[0] = 0;
        n = 1;
    }
    if (n == 1 && v->dims[0] == 1) v->strides[0] = 1;
    v->rank = (uint8_t)n;
}

static void tensor_strides(const compiler *c, const ln_tensor *t, int64_t *strides) {
    int rank = c->source->outputs[0].rank;
    for (int d = 0; d < rank; d++) {
        int own = d - (rank - t->rank);
        strides[d] = own < 0 || t->dims[own] == 1 ? 0 : t->strides[own];
    }
}

/* The array `values` with one entry per index of axis `axis` of tensor t. */
static void axis_view(const compiler *c, ln_map_view *v, const ln_tensor *t, const float *values) {
    int64_t strides[LN_MAX_RANK] = {0};
    int axis = ln_axis(t->quant->axis, t->rank);
    memset(v, 0, sizeof *v);
    v->operand = -1;
    v->dtype = LINNET_F32;
    v->data = values;
    if (t->dims[axis] != 1) strides[c->source->outputs[0].rank - t->rank + axis] = 1;
    make_view(c, v, strides);
}

/* ---- registers ---- */

static int32_t take_slot(compiler *c) { return c->n_free > 0 ? c->slot_free[--c->n_free] : c->n_slots++; }

/* ---- constants ---- */

/* Value of a constant instruction: an immediate, or a load of a one-element input whose value is known. */
static bool constant_value(const compiler *c, int64_t k, void *value) {
    const int64_t *in = instruction(c, k);
    const ln_map_attributes *map = c->source->map;
    memset(value, 0, 8);
    if (in[0] == LN_MAP_CONST) {
        if (in[1] == LINNET_F32 || in[1] == LINNET_F64)
            ln_store_f64(value, (int)in[1], 0, map->floats.v[in[2]]);
        else
            ln_store_wrapped(value, (int)in[1], 0, map->integers.v[in[2]]);
        return true;
    }
    if (in[0] == LN_MAP_LOAD && in[2] != c->source->tile_input) {
        const ln_tensor *t = &c->source->inputs[in[2]];
        if (t->data && ln_count(t) == 1) {
            ln_convert_element(value, (int)in[1], 0, t->data, t->dtype, 0);
            return true;
        }
    }
    return false;
}

/* ---- the program ---- */

/* Whether store k of register `r` may be written by the step that computes it: nothing is read from memory after. */
static bool store_direct(const compiler *c, int64_t k) {
    const int64_t *in = instruction(c, k), *def = instruction(c, in[2]);
    const ln_tensor *t = &c->source->outputs[in[3]];
    if (in[0] != LN_MAP_STORE || t->dtype != in[1] || c->constant[in[2]] >= 0 || is_load(def[0]) ||
        def[0] == LN_MAP_IOTA || def[0] == LN_MAP_TABLE) /* these have a view of their own */
        return false;
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t *other = instruction(c, i);
        if (is_load(other[0]) && c->constant[i] < 0 && (i > in[2] || c->last[i] > in[2])) return false;
        if (i != k && is_store(other[0]) && other[2] == in[2]) return false;
        if (other[0] == LN_MAP_TABLE && i > in[2]) return false;
    }
    return true;
}

static linnet_status allocate(compiler *c, ln_call *call) {
    size_t n = (size_t)c->n;
    c->reg = ln_call_state(call, n * sizeof *c->reg);
    c->last = ln_call_state(call, n * sizeof *c->last);
    c->constant = ln_call_state(call, n * sizeof *c->constant);
    c->slot_free = ln_call_state(call, (3 * n + 3) * sizeof *c->slot_free);
    return c->reg && c->last && c->constant && c->slot_free ? LINNET_OK : LINNET_OUT_OF_MEMORY;
}

static void liveness(compiler *c) {
    int64_t stores = 0;
    for (int64_t k = 0; k < c->n; k++) c->last[k] = -1;
    for (int64_t k = 0; k < c->n; k++) {
        const int64_t *in = instruction(c, k);
        int64_t at = is_store(in[0]) ? c->n + stores++ : k; /* stores run after everything else */
        for (int i = 0; i < arity(in); i++) c->last[in[2 + i]] = ln_max(c->last[in[2 + i]], at);
    }
}

static void quant_numbers(ln_map_step *s, const ln_tensor *t) {
    int64_t low, high, zero = t->quant->zero ? t->quant->zero[0] : 0;
    int exponent;
    ln_quant_range(t->dtype, t->quant->bits, &low, &high);
    s->zero = (int32_t)zero;
    s->scale = per_axis(t) ? 1.0f : t->quant->scale[0];
    s->inverse = 1.0f / s->scale;
    bool power = frexpf(s->scale, &exponent) == 0.5f, common = exponent > -60 && exponent < 60;
    s->how = !common ? LN_MAP_QUOTIENT : power ? LN_MAP_PRODUCT : LN_MAP_NEAREST;
    float unit =
        s->how == LN_MAP_NEAREST ? s->scale : 1.0f; /* an end of the range times scale, by scale, gives that end */
    s->least = (float)(low - zero) * unit;
    s->most = (float)(high - zero) * unit;
}

/* Values that may be memory itself have a register of their own, which no other value shares. */
static void free_operands(compiler *c, const bool *exclusive, int64_t k, const int64_t *in) {
    for (int i = 0; i < arity(in); i++) {
        int64_t r = in[2 + i];
        bool again = (i > 0 && in[2] == r) || (i > 1 && in[3] == r);
        if (!again && c->last[r] == k && c->constant[r] < 0 && !exclusive[r]) c->slot_free[c->n_free++] = c->reg[r];
    }
}

/* Length of the line that all rows of a load share, as those of a normalisation by channels do; 0 for other steps. What
 * may be direct has a register of its own, so that a line can stay in it. */
static int64_t shared_line(const ln_map_view *views, const ln_map_step *s) {
    const ln_map_view *v = &views[s->view];
    bool shared = s->code == LN_MAP_LOAD && s->direct == LN_MAP_DIRECT_LOAD && v->dtype == LINNET_F32 && v->rank == 2 &&
                  v->strides[0] == 0 && v->strides[1] == 1;
    return shared ? v->dims[1] : 0;
}

/* With strips of whole lines every strip sees the same of such operands, and they are loaded once. Lines of several
 * lengths need strips that are a multiple of all of them: the shortest are taken first, which cost most to load and
 * lengthen the strip least; an operand that does not fit in is loaded strip by strip. Returns the strip. */
static int repeat(const ln_map_view *views, ln_map_step *steps, int n_steps, int strip) {
    int64_t whole = 16, most = ln_min(2 * (int64_t)strip, 1024), shortest = 0;
    for (;;) {
        int64_t line = 0; /* the shortest that was not looked at */
        for (int i = 0; i < n_steps; i++) {
            int64_t length = shared_line(views, &steps[i]);
            if (length > shortest && (line == 0 || length < line)) line = length;
        }
        if (line == 0 || line > most) break;
        shortest = line;
        int64_t both = whole;
        while (both % line != 0 && both <= most) both += whole;
        if (both > most) continue;
        whole = both;
        for (int i = 0; i < n_steps; i++)
            if (shared_line(views, &steps[i]) == line) steps[i].direct = LN_MAP_DIRECT_REPEAT;
    }
    return (int)ln_max(whole, strip / whole * whole);
}

linnet_status ln_map_compile(const ln_map_source *source, ln_call *call, ln_map_program **out) {
    compiler c = {.source = source, .n = source->map->program.n / LN_MAP_WORDS};
    ln_map_program *p = ln_call_state(call, sizeof *p);
    size_t n = (size_t)c.n;
    ln_map_step *steps = ln_call_state(call, (3 * n + 1) * sizeof *steps);
    ln_map_view *views = ln_call_state(call, (3 * n + 1) * sizeof *views);
    bool *exclusive = ln_call_state(call, n * sizeof *exclusive);
    bool *direct_store = ln_call_state(call, n * sizeof *direct_store);
    int64_t strides[LN_MAX_RANK], n_constants = 0;
    if (!p || !steps || !views || !exclusive || !direct_store || allocate(&c, call)) return LINNET_OUT_OF_MEMORY;
    order_axes(&c);
    liveness(&c);
    bool wide = false;
    for (int64_t k = 0; k < c.n; k++) {
        char value[8];
        wide = wide || is_wide((int)instruction(&c, k)[1]);
        c.constant[k] = constant_value(&c, k, value) ? (int32_t)n_constants++ : -1;
    }
    for (int64_t k = 0; k < c.n; k++) {
        const int64_t *in = instruction(&c, k);
        bool loads_register = in[0] == LN_MAP_LOAD && source->inputs[in[2]].dtype == in[1];
        exclusive[k] = exclusive[k] || (loads_register && c.constant[k] < 0);
        if (is_store(in[0]) && store_direct(&c, k)) direct_store[k] = exclusive[in[2]] = true;
    }
    int n_steps = 0, n_views = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t k = 0; k < c.n; k++) {
            const int64_t *in = instruction(&c, k);
            if (is_store(in[0]) != (pass == 1) || c.constant[k] >= 0) continue;
            ln_map_step *s = &steps[n_steps++];
            s->code = (uint8_t)in[0];
            s->type = (uint8_t)in[1];
            int32_t scale_register = -1;
            if (is_load(in[0]) || is_store(in[0]) || in[0] == LN_MAP_IOTA || in[0] == LN_MAP_TABLE) {
                ln_map_view *v = &views[n_views];
                const ln_tensor *t = is_store(in[0])         ? &source->outputs[in[3]]
                                     : in[0] == LN_MAP_TABLE ? &source->inputs[in[3]]
                                     : is_load(in[0])        ? &source->inputs[in[2]]
                                                             : NULL;
                s->view = n_views++;
                v->operand = (int32_t)(is_store(in[0])         ? source->n_inputs + in[3]
                                       : in[0] == LN_MAP_TABLE ? in[3]
                                                               : in[2]);
                if (in[0] == LN_MAP_IOTA) {
                    memset(strides, 0, sizeof strides);
                    strides[in[2]] = source->outputs[0].dims[in[2]] == 1 ? 0 : 1;
                    v->operand = -1;
                    v->iota = true;
                    v->dtype = LINNET_I64;
                    make_view(&c, v, strides);
                } else {
                    v->dtype = t->dtype;
                    if (in[0] == LN_MAP_TABLE) {
                        v->rank = 1;
                        v->dims[0] = t->dims[0];
                        v->strides[0] = t->strides[0];
                    } else {
                        tensor_strides(&c, t, strides);
                        make_view(&c, v, strides);
                    }
                }
                /* Not what a later store still reads: an earlier one may write over the operand itself. */
                if (in[0] == LN_MAP_LOAD && v->dtype == in[1] && c.last[k] <= c.n) s->direct = LN_MAP_DIRECT_LOAD;
                if (in[0] == LN_MAP_LOAD_DEQUANTIZED || in[0] == LN_MAP_STORE_QUANTIZED) {
                    quant_numbers(s, t);
                    if (per_axis(t)) { /* one step more: the scale as an operand of its own */
                        scale_register = take_slot(&c);
                        axis_view(&c, &views[n_views++], t, t->quant->scale);
                    }
                }
            }
            if (is_store(in[0])) {
                int32_t value = c.constant[in[2]] >= 0 ? -1 - c.constant[in[2]] : c.reg[in[2]];
                s->from = (uint8_t)in[1];
                if (scale_register >= 0) { /* load scale, divide, then the store */
                    ln_map_step store = *s;
                    *s = (ln_map_step){
                        .code = LN_MAP_LOAD, .type = LINNET_F32, .y = scale_register, .view = n_views - 1};
                    steps[n_steps++] = (ln_map_step){.code = LN_MAP_DIV,
                                                     .type = LINNET_F32,
                                                     .y = scale_register,
                                                     .a = value,
                                                     .b = scale_register,
                                                     .view = store.view};
                    s = &steps[n_steps++];
                    *s = store;
                    s->a = scale_register;
                    c.slot_free[c.n_free++] = scale_register;
                } else {
                    s->a = value;
                }
                s->direct = direct_store[k] ? LN_MAP_DIRECT_STORE : 0;
                continue;
            }
            int operands = arity(in), same_width = 1;
            int32_t *to[3] = {&s->a, &s->b, &s->c};
            for (int i = 0; i < operands; i++) {
                int64_t r = in[2 + i];
                *to[i] = c.constant[r] >= 0 ? -1 - c.constant[r] : c.reg[r];
                same_width =
                    same_width && is_wide(ln_map_result_type(instruction(&c, r))) == is_wide(ln_map_result_type(in));
            }
            if (in[0] == LN_MAP_CAST) s->from = (uint8_t)ln_map_result_type(instruction(&c, in[2]));
            if (in[0] == LN_MAP_FIXED_MULTIPLY || in[0] == LN_MAP_FIXED_MULTIPLY_SINGLE) {
                s->multiplier = (int32_t)source->map->integers.v[in[3]];
                s->shift = (int32_t)source->map->integers.v[in[4]];
            }
            /* A result may take the place of an operand that ends here, lane for lane. */
            if (same_width) free_operands(&c, exclusive, k, in);
            c.reg[k] = s->y = exclusive[k] ? c.n_slots++ : take_slot(&c);
            if (!same_width) free_operands(&c, exclusive, k, in);
            if (c.last[k] < 0 && !exclusive[k]) c.slot_free[c.n_free++] = c.reg[k]; /* never read */
            if (scale_register >= 0) {
                steps[n_steps++] =
                    (ln_map_step){.code = LN_MAP_LOAD, .type = LINNET_F32, .y = scale_register, .view = n_views - 1};
                steps[n_steps++] = (ln_map_step){
                    .code = LN_MAP_MUL, .type = LINNET_F32, .y = s->y, .a = s->y, .b = scale_register, .view = s->view};
                c.slot_free[c.n_free++] = scale_register;
            }
            for (int64_t store = k + 1; store < c.n; store++) /* the step that may write to the output itself */
                if (direct_store[store] && instruction(&c, store)[2] == k) s->direct = LN_MAP_DIRECT_STORE;
        }
    }
    /* Direct stores: the computing step needs the view of its store. */
    for (int i = 0; i < n_steps; i++) {
        if (steps[i].code != LN_MAP_STORE || steps[i].direct != LN_MAP_DIRECT_STORE) continue;
        for (int j = 0; j < i; j++)
            if (steps[j].direct == LN_MAP_DIRECT_STORE && steps[j].code != LN_MAP_STORE && steps[j].y == steps[i].a)
                steps[j].view = steps[i].view;
    }
    p->n_steps = n_steps;
    p->n_views = n_views;
    p->n_inputs = source->n_inputs;
    p->n_slots = c.n_slots;
    p->n_registers = c.n_slots + (int32_t)n_constants;
    for (int i = 0; i < n_steps; i++) {
        int32_t *to[3] = {&steps[i].a, &steps[i].b, &steps[i].c};
        for (int j = 0; j < 3; j++)
            if (*to[j] < 0) *to[j] = c.n_slots + (-1 - *to[j]);
    }
    /* The strip: as long as the registers stay within the budget. */
    int width = wide ? 8 : 4, strip = 512;
    size_t fixed = (size_t)p->n_registers * sizeof(char *) + 64;
    while (strip > 16 && fixed + (size_t)c.n_slots * (size_t)strip * (size_t)width > (size_t)source->most_bytes)
        strip /= 2;
    if (source->tile_input < 0 && !wide) strip = repeat(views, steps, n_steps, strip);
    p->strip = strip;
    p->register_bytes = (uint32_t)(strip * width);
    p->scratch_bytes = (uint32_t)(fixed + (size_t)c.n_slots * p->register_bytes);
    char *constants = ln_call_state(call, (size_t)n_constants * p->register_bytes + 1);
    if (!constants) return LINNET_OUT_OF_MEMORY;
    for (int64_t k = 0; k < c.n; k++) {
        char value[8];
        if (c.constant[k] < 0) continue;
        constant_value(&c, k, value);
        size_t size = ln_dtype_size((int)instruction(&c, k)[1]);
        for (int i = 0; i < strip; i++)
            memcpy(constants + (size_t)c.constant[k] * p->register_bytes + (size_t)i * size, value, size);
    }
    p->constants = constants;
    p->steps = steps;
    p->views = views;
    p->count = source->tile_input < 0 ? ln_count(&source->outputs[0]) : 0;
    *out = p;
    return LINNET_OK;
}
