/* map_compile.c - compiles a map program for the strip interpreter: allocates registers by liveness, fills constants
 * once, and avoids copies in loads and stores. Runs at plan time, after the program was verified. */
#include "map/map_compile.h"

#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "map/map_program.h"
#include "map/map_shape.h"
#include "map/map_uses.h"
#include "map/map_views.h"

#include <math.h>

#include <string.h>

typedef struct compiler {
    const ln_map_source *source;
    /* One entry per instruction of the program. */
    int64_t n;
    int32_t *reg;       /* register of its value; -1: none */
    int64_t *last;      /* last instruction that reads it; store number i counts as n + i */
    int32_t *constant;  /* number of its constant; -1: it is not a constant */
    bool *exclusive;    /* its register may point into a tensor, so it shares the register with no other value */
    bool *direct_store; /* a store that is done by the step that computes its operand */
    int32_t n_constants;
    bool wide; /* at least one register holds 64-bit numbers */
    ln_map_order order;
    /* Registers (slots) of values that are not constants. */
    int32_t *slot_free; /* stack of free slots */
    int n_free, n_slots;
    /* The results */
    ln_map_step *steps;
    ln_map_view *views;
    int n_steps, n_views;
} compiler;

static const int64_t *instruction(const compiler *c, int64_t k) { return c->source->map->program.v + k * LN_MAP_WORDS; }

static bool is_load(int64_t opcode) { return opcode == LN_MAP_LOAD || opcode == LN_MAP_LOAD_DEQUANTIZED; }
static bool is_store(int64_t opcode) { return opcode == LN_MAP_STORE || opcode == LN_MAP_STORE_QUANTIZED; }

/* Returns the number of operands that are registers. */
static int arity(const int64_t *in) { return ln_map_opcodes[in[0]].arity; }

static bool is_wide(int type) { return type == LINNET_F64 || type == LINNET_I64; }

/* Tells whether the strips can apply the quantization: all scales must have the same zero point. */
static bool plain_quant(const ln_quant *q) {
    for (uint32_t i = 1; q->zero && i < q->count; i++)
        if (q->zero[i] != q->zero[0]) return false;
    return q->count > 0 && q->scheme != LN_QUANT_BLOCK;
}

static bool per_axis(const ln_tensor *t) { return t->quant->scheme == LN_QUANT_AXIS && t->quant->count > 1; }

bool ln_map_compilable(const ln_map_source *s) {
    int64_t n = s->map->program.n / LN_MAP_WORDS;
    if (n > LN_MAP_COMPILED_MOST) return false;
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

/* ---- registers ---- */

static int32_t take_slot(compiler *c) { return c->n_free > 0 ? c->slot_free[--c->n_free] : c->n_slots++; }

/* ---- constants ---- */

bool ln_map_constant_value(const ln_map_source *source, int64_t k, void *value) {
    const ln_map_attributes *map = source->map;
    const int64_t *in = map->program.v + k * LN_MAP_WORDS;
    memset(value, 0, 8);
    if (in[0] == LN_MAP_CONST) {
        if (in[1] == LINNET_F32 || in[1] == LINNET_F64)
            ln_store_f64(value, (int)in[1], 0, map->floats.v[in[2]]);
        else
            ln_store_wrapped(value, (int)in[1], 0, map->integers.v[in[2]]);
        return true;
    }
    if (in[0] == LN_MAP_LOAD && in[2] != source->tile_input) {
        const ln_tensor *t = &source->inputs[in[2]];
        if (t->data && ln_count(t) == 1) {
            ln_convert_element(value, (int)in[1], 0, t->data, t->dtype, 0);
            return true;
        }
    }
    return false;
}

/* ---- the program ---- */

/* Tells whether the step that computes the operand of store k may also do the store. It may not if a later step still
 * reads an input, because an output may share its memory with an input. */
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

/* One instruction can become three steps, and each step can have a view. */
static linnet_status allocate(compiler *c, ln_pool *pool) {
    const int64_t n = c->n;
    c->reg = ln_pool_array(pool, n, sizeof *c->reg);
    c->last = ln_pool_array(pool, n, sizeof *c->last);
    c->constant = ln_pool_array(pool, n, sizeof *c->constant);
    c->exclusive = ln_pool_array(pool, n, sizeof *c->exclusive);
    c->direct_store = ln_pool_array(pool, n, sizeof *c->direct_store);
    c->slot_free = ln_pool_array(pool, 3 * n + 3, sizeof *c->slot_free);
    c->steps = ln_pool_array(pool, 3 * n + 1, sizeof *c->steps);
    c->views = ln_pool_array(pool, 3 * n + 1, sizeof *c->views);
    const bool all =
        c->reg && c->last && c->constant && c->exclusive && c->direct_store && c->slot_free && c->steps && c->views;
    return all ? LINNET_OK : LINNET_OUT_OF_MEMORY;
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
    /* NEAREST clamps before it divides by the scale. A limit times the scale, divided by the scale, is exact. */
    float unit = s->how == LN_MAP_NEAREST ? s->scale : 1.0f;
    s->least = (float)(low - zero) * unit;
    s->most = (float)(high - zero) * unit;
}

/* Frees the registers of operands that instruction k is the last to read. An exclusive register is not freed, so that
   no other value gets it. */
static void free_operands(compiler *c, int64_t k, const int64_t *in) {
    for (int i = 0; i < arity(in); i++) {
        int64_t r = in[2 + i];
        bool again = (i > 0 && in[2] == r) || (i > 1 && in[3] == r);
        if (!again && c->last[r] == k && c->constant[r] < 0 && !c->exclusive[r]) c->slot_free[c->n_free++] = c->reg[r];
    }
}

/* A line is the contiguous elements that a load reads again for every row, such as the scales of the channels. Returns
   the length of the line; 1 if all elements are equal; 0 for any other step. The load must be a direct one, which has a
   register of its own, so the line can stay in that register. */
static int64_t shared_line(const ln_map_view *views, const ln_map_step *s) {
    const ln_map_view *v = &views[s->view];
    const bool direct = s->code == LN_MAP_LOAD && s->direct == LN_MAP_DIRECT_LOAD && v->dtype == LINNET_F32;
    if (!direct || v->strides[0] != 0) return 0;
    return v->rank == 1 ? 1 : v->rank == 2 && v->strides[1] == 1 ? v->dims[1] : 0;
}

/* Marks the loads of lines that need to run only once. If the length of a strip is a multiple of the length of a line,
 * the load has the same result in every strip. With lines of several lengths, the strip must be a multiple of each.
 * Short lines are taken first, because they cost most to load and lengthen the strip least. A line that would make the
 * strip too long is loaded again in every strip. Returns the new length of the strip. */
static int repeat(const ln_map_view *views, ln_map_step *steps, int n_steps, int strip) {
    int64_t whole = 16, most = ln_min(2 * (int64_t)strip, 1024), shortest = 0;
    for (;;) {
        int64_t line = 0; /* the shortest line not handled yet */
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

static void number_constants(compiler *c) {
    for (int64_t k = 0; k < c->n; k++) {
        char value[8];
        c->wide = c->wide || is_wide((int)instruction(c, k)[1]);
        c->constant[k] = ln_map_constant_value(c->source, k, value) ? c->n_constants++ : -1;
    }
}

/* Finds the values whose register may be the memory of a tensor: loads of the register's own type, and operands of
   direct stores. */
static void find_exclusive(compiler *c) {
    for (int64_t k = 0; k < c->n; k++) {
        const int64_t *in = instruction(c, k);
        const bool loads_register = in[0] == LN_MAP_LOAD && c->source->inputs[in[2]].dtype == in[1];
        c->exclusive[k] = c->exclusive[k] || (loads_register && c->constant[k] < 0);
        if (is_store(in[0]) && store_direct(c, k)) c->direct_store[k] = c->exclusive[in[2]] = true;
    }
}

/* The register of the value of instruction k. Constants have negative numbers until place_constants, because they come
 * after all slots and the number of slots is not known yet. */
static int32_t register_of(const compiler *c, int64_t k) {
    return c->constant[k] >= 0 ? -1 - c->constant[k] : c->reg[k];
}

/* ---- steps ---- */

static ln_map_step *new_step(compiler *c) { return &c->steps[c->n_steps++]; }

/* Returns the tensor that an instruction reads or writes, and its number among the operands (inputs, then outputs);
 * NULL if it accesses no tensor. */
static const ln_tensor *tensor_of(const compiler *c, const int64_t *in, int32_t *operand) {
    const ln_map_source *source = c->source;
    const int64_t input = in[0] == LN_MAP_TABLE ? in[3] : in[2];
    if (is_store(in[0])) {
        *operand = (int32_t)(source->n_inputs + in[3]);
        return &source->outputs[in[3]];
    }
    *operand = (int32_t)input;
    return is_load(in[0]) || in[0] == LN_MAP_TABLE ? &source->inputs[input] : NULL;
}

/* Gives the step of instruction k its view if the instruction accesses memory. If a scale per index of an axis must be
 * loaded first, adds a second view, of the scale, and returns the register for the scale. Otherwise returns -1. */
static int32_t add_views(compiler *c, ln_map_step *s, int64_t k) {
    const int64_t *in = instruction(c, k);
    int32_t operand;
    const ln_tensor *t = tensor_of(c, in, &operand);
    if (t == NULL && in[0] != LN_MAP_IOTA) return -1;
    ln_map_view *v = &c->views[c->n_views];
    s->view = c->n_views++;
    if (t == NULL) {
        ln_map_view_iota(&c->order, v, in[2]);
        return -1;
    }
    v->operand = operand;
    v->dtype = t->dtype;
    if (in[0] == LN_MAP_TABLE) {
        v->rank = 1;
        v->dims[0] = t->dims[0];
        v->strides[0] = t->strides[0];
    } else {
        ln_map_view_tensor(&c->order, v, t);
    }
    /* The register can be the memory of the operand itself only if no store reads the register: stores come last, and
     * an earlier store may already have overwritten the operand. */
    if (in[0] == LN_MAP_LOAD && v->dtype == in[1] && c->last[k] <= c->n) s->direct = LN_MAP_DIRECT_LOAD;
    if (in[0] != LN_MAP_LOAD_DEQUANTIZED && in[0] != LN_MAP_STORE_QUANTIZED) return -1;
    quant_numbers(s, t);
    if (!per_axis(t)) return -1;
    ln_map_view_axis(&c->order, &c->views[c->n_views++], t, t->quant->scale);
    return take_slot(c);
}

static ln_map_step load_scale(const compiler *c, int32_t scale) {
    return (ln_map_step){.code = LN_MAP_LOAD, .type = LINNET_F32, .y = scale, .view = c->n_views - 1};
}

/* Adds the step `s` of store k. With a scale per axis, further steps load the scale and divide by it before the store.
 */
static void add_store(compiler *c, ln_map_step *s, int64_t k, int32_t scale) {
    const int64_t *in = instruction(c, k);
    const int32_t value = register_of(c, in[2]);
    s->from = (uint8_t)in[1];
    s->a = value;
    if (scale >= 0) {
        ln_map_step store = *s;
        *s = load_scale(c, scale);
        *new_step(c) = (ln_map_step){
            .code = LN_MAP_DIV, .type = LINNET_F32, .y = scale, .a = value, .b = scale, .view = store.view};
        s = new_step(c);
        *s = store;
        s->a = scale;
        c->slot_free[c->n_free++] = scale;
    }
    s->direct = c->direct_store[k] ? LN_MAP_DIRECT_STORE : 0;
}

/* Adds the step `s` that computes the value of instruction k. With a scale per axis, further steps load the scale and
   multiply by it. */
static void add_value(compiler *c, ln_map_step *s, int64_t k, int32_t scale) {
    const int64_t *in = instruction(c, k), *integers = c->source->map->integers.v;
    int16_t *const to[3] = {&s->a, &s->b, &s->c};
    bool same_width = true;
    for (int i = 0; i < arity(in); i++) {
        const int64_t r = in[2 + i];
        *to[i] = (int16_t)register_of(c, r);
        same_width = same_width && is_wide(ln_map_result_type(instruction(c, r))) == is_wide(ln_map_result_type(in));
    }
    if (c->source->activations && in[0] == LN_MAP_ACTIVATION && in[1] == LINNET_F32) {
        s->activation = (int32_t)in[3];
        for (int i = 0; i < 4; i++) s->constants[i] = (float)c->source->map->floats.v[in[4] + i];
    }
    if (in[0] == LN_MAP_CAST) s->from = (uint8_t)ln_map_result_type(instruction(c, in[2]));
    if (in[0] == LN_MAP_FIXED_MULTIPLY || in[0] == LN_MAP_FIXED_MULTIPLY_SINGLE) {
        s->multiplier = (int32_t)integers[in[3]];
        s->shift = (int32_t)integers[in[4]];
    }
    /* A result may use the register of an operand that is not read later, because each lane depends only on the same
       lane of the operands. */
    if (same_width) free_operands(c, k, in);
    c->reg[k] = c->exclusive[k] ? c->n_slots++ : take_slot(c);
    s->y = (int16_t)c->reg[k];
    if (!same_width) free_operands(c, k, in);
    if (c->last[k] < 0 && !c->exclusive[k]) c->slot_free[c->n_free++] = c->reg[k]; /* never read */
    if (scale >= 0) {
        const int32_t y = s->y, view = s->view;
        *new_step(c) = load_scale(c, scale);
        *new_step(c) = (ln_map_step){.code = LN_MAP_MUL, .type = LINNET_F32, .y = y, .a = y, .b = scale, .view = view};
        c->slot_free[c->n_free++] = scale;
    }
    for (int64_t store = k + 1; store < c->n; store++) /* s may write directly to the output */
        if (c->direct_store[store] && instruction(c, store)[2] == k) s->direct = LN_MAP_DIRECT_STORE;
}

/* Adds all values first, then all stores, because an output may share its memory with an input. */
static void add_steps(compiler *c) {
    for (int pass = 0; pass < 2; pass++)
        for (int64_t k = 0; k < c->n; k++) {
            const int64_t *in = instruction(c, k);
            if (in[0] == 0 || is_store(in[0]) != (pass == 1) || c->constant[k] >= 0) continue;
            ln_map_step *s = new_step(c);
            s->code = (uint8_t)in[0];
            s->type = (uint8_t)in[1];
            const int32_t scale = add_views(c, s, k);
            if (is_store(in[0]))
                add_store(c, s, k, scale);
            else
                add_value(c, s, k, scale);
        }
}

/* A step that writes directly to the output needs the view of its store. */
static void share_store_views(compiler *c) {
    for (int i = 0; i < c->n_steps; i++) {
        const ln_map_step *store = &c->steps[i];
        if (store->code != LN_MAP_STORE || store->direct != LN_MAP_DIRECT_STORE) continue;
        for (int j = 0; j < i; j++) {
            ln_map_step *s = &c->steps[j];
            if (s->direct == LN_MAP_DIRECT_STORE && s->code != LN_MAP_STORE && s->y == store->a) s->view = store->view;
        }
    }
}

/* Constants get the registers after all slots. */
static void place_constants(compiler *c) {
    for (int i = 0; i < c->n_steps; i++) {
        int16_t *const to[3] = {&c->steps[i].a, &c->steps[i].b, &c->steps[i].c};
        for (int j = 0; j < 3; j++)
            if (*to[j] < 0) *to[j] = (int16_t)(c->n_slots + (-1 - *to[j]));
    }
}

/* ---- the strip ---- */

/* Chooses the number of elements per strip: the largest number for which all registers fit in the budget. */
static void choose_strip(compiler *c, ln_map_program *p) {
    const int width = c->wide ? 8 : 4;
    const size_t fixed = (size_t)p->n_registers * sizeof(char *) + 64;
    int strip = 512;
    while (strip > 16 && fixed + (size_t)c->n_slots * (size_t)strip * (size_t)width > (size_t)c->source->most_bytes)
        strip /= 2;
    /* Strips that are longer than the result would only lengthen registers and constants. */
    if (c->source->tile_input < 0) strip = (int)ln_max(16, ln_min(strip, ln_ceil_div(p->count, 16) * 16));
    if (c->source->tile_input < 0 && !c->wide) strip = repeat(c->views, c->steps, c->n_steps, strip);
    p->strip = strip;
    p->register_bytes = (uint32_t)(strip * width);
    p->scratch_bytes = (uint32_t)(fixed + (size_t)c->n_slots * p->register_bytes);
}

const char *ln_map_constants(const ln_map_source *source, const ln_map_program *p, ln_pool *pool) {
    char *constants = ln_pool_array(pool, p->n_registers - p->n_slots, p->register_bytes), *strip = constants;
    for (int64_t k = 0; constants != NULL && k < source->map->program.n / LN_MAP_WORDS; k++) {
        char value[8];
        if (!ln_map_constant_value(source, k, value)) continue;
        const size_t size = ln_dtype_size((int)source->map->program.v[k * LN_MAP_WORDS + 1]);
        const size_t whole = (size_t)p->strip * size;
        memcpy(strip, value, size);
        for (size_t done = size; done < whole; done *= 2)
            memcpy(strip + done, strip, done < whole - done ? done : whole - done);
        strip += p->register_bytes;
    }
    return constants;
}

linnet_status ln_map_compile(const ln_map_source *source, ln_pool *pool, ln_map_program *p) {
    compiler c = {.source = source, .n = source->map->program.n / LN_MAP_WORDS};
    if (allocate(&c, pool) != LINNET_OK) return LINNET_OUT_OF_MEMORY;
    ln_map_order_axes(&c.order, &source->outputs[0]);
    liveness(&c);
    number_constants(&c);
    find_exclusive(&c);
    add_steps(&c);
    share_store_views(&c);
    place_constants(&c);
    *p = (ln_map_program){.n_steps = c.n_steps,
                          .n_views = c.n_views,
                          .n_inputs = source->n_inputs,
                          .n_slots = c.n_slots,
                          .n_registers = c.n_slots + c.n_constants,
                          .steps = c.steps,
                          .views = c.views,
                          .count = source->tile_input < 0 ? ln_count(&source->outputs[0]) : 0};
    choose_strip(&c, p);
    ln_map_find_uses(c.steps, c.n_steps, c.views, c.n_slots);
    return LINNET_OK;
}

linnet_status ln_map_keep(const ln_map_source *source, const ln_map_program *compiled, ln_call *call,
                          ln_map_program **out) {
    ln_pool *pool = call->plan;
    ln_map_program *p = ln_pool_alloc(pool, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    *p = *compiled;
    *out = p;
    if (p->table != NULL || p->sum != NULL) { /* a run needs nothing else */
        p->n_steps = p->n_views = 0;
        return LINNET_OK;
    }
    const size_t bytes = (size_t)p->n_steps * sizeof *p->steps, more = (size_t)p->n_views * sizeof *p->views;
    char *block = ln_pool_alloc(pool, bytes + more);
    p->constants = ln_map_constants(source, p, pool);
    if (block == NULL || p->constants == NULL) return LINNET_OUT_OF_MEMORY;
    p->steps = memcpy(block, compiled->steps, bytes);
    p->views = memcpy(block + bytes, compiled->views, more);
    return LINNET_OK;
}
