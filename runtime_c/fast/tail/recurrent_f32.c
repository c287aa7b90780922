/* recurrent_f32.c - RNN, GRU and LSTM in f32, the part that is the same for every ISA. Constant weights are packed
   once, and rows are computed one by one, or block by block of hidden units if there are fewer rows than threads. If
   weights are known only at run time, all rows of a batch are computed together, with one matrix product per step. The
   hot loops are in fast/tail/recurrent.inc.c, the steps in
   recurrent_steps.inc. */
#include "fast/tail/recurrent_f32.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_pack.h"
#include "kernel/common/quant_unpack.h"
#include "kernel/cost.h"

#include <math.h>
#include <string.h>

#define REAL float

typedef struct cell {
    const ln_recurrent_attributes *attributes;
    int64_t hidden, padded;
    ln_recurrent_activation activations[3];
    float clip;
    const float *peepholes, *bias;
    const ln_recurrent_vectors *vectors;
    const uint8_t *weights; /* [gate][panel][k][column of the panel] of one direction: f32, or weights of 8 bits */
    int64_t length, gate;   /* the length of the state, and the bytes of a gate in `weights` */
    const float *scales;    /* [gate][column] for weights of 8 bits; NULL for f32 */
    int64_t units;          /* numbers of a gate in `scales`, and in `levels` */
    float *levels;          /* scratch for the integers of a state */
    const float *products;  /* for batches: weights . state of each gate, computed before the step */
    const float *state;     /* for blocks of units: the whole state before the step */
} cell;

static bool narrow(const ln_call *call) { return call->inputs[LN_RECURRENT_WEIGHTS].dtype == LINNET_I8; }

/* Returns the bytes of a column of packed weights. */
static int64_t column_bytes(const ln_call *call) {
    const ln_recurrent *plan = call->state;
    return narrow(call) ? (int64_t)ln_round_up((size_t)plan->hidden, 4) : plan->hidden * (int64_t)sizeof(float);
}

static void bind_weights(cell *s, const ln_call *call, const ln_buffers *b, int64_t direction) {
    const ln_recurrent *plan = call->state;
    s->length = plan->hidden;
    s->gate = plan->padded * column_bytes(call);
    s->weights = (const uint8_t *)b->packed + direction * plan->gates * s->gate;
    s->units = plan->padded;
    if (narrow(call)) /* the scales follow the weights of all directions */
        s->scales =
            (const float *)(const void *)((const uint8_t *)b->packed + plan->directions * plan->gates * s->gate) +
            direction * plan->gates * s->units;
}

static void fetch(const ln_tensor *t, const void *data, int64_t at, int64_t n, float *out) {
    (void)t;
    memcpy(out, (const float *)data + at, (size_t)n * sizeof *out);
}

static void put(const ln_tensor *t, void *data, int64_t at, int64_t n, const float *x) {
    (void)t;
    memcpy((float *)data + at, x, (size_t)n * sizeof *x);
}

static void multiply(const cell *s, int64_t first, int64_t n, const float *x, float *y) {
    const float *state = s->state != NULL ? s->state : x;
    int16_t *levels = (int16_t *)(void *)s->levels;
    if (s->products != NULL) {
        for (int64_t i = 0; i < n * s->padded; i++) y[i] += s->products[first * s->padded + i];
        return;
    }
    float scale = 0;
    if (s->scales != NULL) {
        memset(s->levels, 0, (size_t)s->units * sizeof *s->levels);
        memcpy(s->levels, state, (size_t)s->length * sizeof *s->levels);
        scale = s->vectors->round(s->levels, s->length);
    }
    for (int64_t k = 0; k < n; k++, y += s->padded) {
        const void *w = s->weights + (first + k) * s->gate;
        if (s->scales == NULL)
            s->vectors->multiply(w, s->padded, state, s->length, y);
        else
            s->vectors->multiply_levels(w, s->scales + (first + k) * s->units, s->padded, levels,
                                        (int64_t)ln_round_up((size_t)s->length, 4), scale, y);
    }
}

static void activate(const cell *s, int index, float clip, float *x) {
    const ln_recurrent_activation *f = &s->activations[index];
    if (f->kind == LN_ACTIVATION_SIGMOID || f->kind == LN_ACTIVATION_TANH) {
        s->vectors->activate(f->kind == LN_ACTIVATION_TANH, clip, x, s->hidden);
        return;
    }
    for (int64_t i = 0; i < s->hidden; i++) {
        const float v = clip <= 0 ? x[i] : x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
        x[i] = (float)ln_recurrent_activate(f, (double)v);
    }
}

#include "ops/recurrent_steps.inc"

bool ln_recurrent_dense_f32(const ln_call *call, unsigned others) {
    for (int i = 0; i < call->n_inputs + call->n_outputs; i++) {
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (t->dtype == LINNET_NONE || (others >> i & 1)) continue;
        if (t->dtype != LINNET_F32 || !ln_is_dense(t)) return false;
    }
    return true;
}

/* With more hidden units, a sum of integers would not fit in 32 bits. */
enum { MOST_NARROW = 4096 };

bool ln_recurrent_can(const ln_call *call) {
    const ln_tensor *w = &call->inputs[LN_RECURRENT_WEIGHTS];
    const unsigned others = 1u << LN_RECURRENT_LENGTHS | (narrow(call) ? 1u << LN_RECURRENT_WEIGHTS : 0u);
    if (narrow(call) && (!ln_is_dense(w) || w->dims[2] > MOST_NARROW)) return false;
    return ln_packable(w) && ln_recurrent_dense_f32(call, others);
}

/* Every step loads each weight again and uses it for only one product. */
void ln_recurrent_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    ln_scale_products(counts, narrow(call) ? 1 : 2.3);
}

/* The weights are packed in each run. A product of few rows loads as many weights as a product of many rows. */
void ln_recurrent_batch_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    const int64_t rows = call->inputs[LN_RECURRENT_P].dims[1];
    ln_scale_products(counts, rows < 4 ? 4 : 1.2);
    counts->work[LN_RATE_MOVE] += (double)ln_count(&call->inputs[LN_RECURRENT_WEIGHTS]);
}

/* Packs weights of 8 bits, and their scales behind them. */
LN_PLANNING static void pack_narrow(const ln_call *call, const ln_recurrent_vectors *vectors, uint8_t *out) {
    const ln_recurrent *plan = call->state;
    const ln_tensor *t = &call->inputs[LN_RECURRENT_WEIGHTS];
    const int8_t *w = t->data;
    const int64_t hidden = plan->hidden, group = vectors->group, gates = plan->directions * plan->gates;
    float *scales = (float *)(void *)(out + gates * plan->padded * column_bytes(call));
    for (int64_t gate = 0; gate < gates; gate++)
        for (int64_t unit = 0; unit < plan->padded; unit++)
            *scales++ = unit < hidden ? ln_quant_line_scale(t, gate * hidden + unit) : 0;
    for (int64_t gate = 0; gate < gates; gate++, w += hidden * hidden)
        for (int64_t first = 0; first < plan->padded; first += vectors->panel)
            for (int64_t k = 0; k < column_bytes(call); k += group)
                for (int64_t i = first; i < first + vectors->panel; i++)
                    for (int64_t j = 0; j < group; j++) {
                        /* The kernels multiply bytes 0 and 2 of a group by the levels 0 and 1, and then bytes 1 and 3.
                         */
                        const int64_t at = k + (group == 4 ? (j >> 1 | (j & 1) << 1) : j);
                        *out++ = (uint8_t)((i < hidden && at < hidden ? w[i * hidden + at] : 0) + vectors->offset);
                    }
}

void ln_recurrent_pack(const ln_call *call, const ln_recurrent_vectors *vectors, void *packed) {
    const ln_recurrent *plan = call->state;
    const int64_t panel = vectors->panel;
    float *out = packed;
    if (narrow(call)) {
        pack_narrow(call, vectors, packed);
        return;
    }
    const float *w = call->inputs[LN_RECURRENT_WEIGHTS].data;
    for (int64_t gate = 0; gate < plan->directions * plan->gates; gate++, w += plan->hidden * plan->hidden)
        for (int64_t first = 0; first < plan->padded; first += panel)
            for (int64_t k = 0; k < plan->hidden; k++)
                for (int64_t i = first; i < first + panel; i++)
                    *out++ = i < plan->hidden ? w[i * plan->hidden + k] : 0.0f;
}

/* For steps that are computed in blocks, the cell computes a block of `width` hidden units of one row. Lines are that
 * long, with zeros after the last unit. Scratch: h before and after a step, [2][batch][direction][padded]; c,
 * [batch][direction][padded]; for batches also the weights in panels [direction][block][gate][hidden][width]. Scratch
 * of a thread, for batches: products of a tile of rows. */
enum { WIDTH = 64 };

typedef struct places {
    float *panels, *h, *c;
    int64_t state; /* numbers in one set of states */
    int64_t all;   /* numbers in total; also set if there is no scratch */
} places;

static places places_of(const ln_recurrent *plan, bool packs, void *scratch) {
    const int64_t panels = packs ? plan->directions * plan->padded * plan->gates * plan->hidden : 0;
    const int64_t state = plan->batch * plan->directions * plan->padded;
    places p = {.panels = scratch, .state = state, .all = panels + 3 * state};
    if (scratch == NULL) return p;
    p.h = p.panels + panels;
    p.c = p.h + 2 * state;
    return p;
}

/* Tells whether a step can be computed block by block. Without linear_before_reset, the hidden gate of a GRU needs all
 * units of the reset gate. */
static LN_PLANNING bool in_blocks(const ln_call *call) {
    const ln_recurrent_attributes *a = call->attributes;
    const ln_tensor *p = &call->inputs[0];
    return (a->kind != LN_RECURRENT_KIND_GRU || a->linear_before_reset) && p->dims[0] > 0 && p->dims[1] > 0 &&
           p->dims[2] > 0 && p->dims[0] < INT32_MAX - 1;
}

bool ln_recurrent_batch_can(const ln_call *call) {
    return in_blocks(call) && ln_recurrent_dense_f32(call, 1u << LN_RECURRENT_LENGTHS);
}

linnet_status ln_recurrent_batch_configure(ln_call *call, const ln_recurrent_vectors *vectors) {
    const ln_gemm_set *set = vectors->set;
    const linnet_status status = ln_recurrent_configure(call, set->width, sizeof(float));
    if (status != LINNET_OK) return status;
    ln_recurrent *plan = call->state;
    plan->blocks = plan->padded / set->width;
    call->scratch_bytes = (size_t)places_of(plan, true, NULL).all * sizeof(float);
    call->scratch_thread = (size_t)(set->rows * plan->gates * set->width) * sizeof(float);
    call->phases = (int)plan->time + 1;
    call->work[0] = call->work[1] = plan->directions * plan->blocks;
    return LINNET_OK;
}

/* Reads n numbers and appends zeros up to `width`. An absent operand is read as zeros. */
static void take(const ln_call *call, const ln_buffers *b, int operand, int64_t at, int64_t n, int64_t width,
                 float *out) {
    const bool has = ln_recurrent_has(call, operand);
    if (has) memcpy(out, (const float *)b->inputs[operand] + at, (size_t)n * sizeof *out);
    memset(out + (has ? n : 0), 0, (size_t)(has ? width - n : width) * sizeof *out);
}

static void give(const ln_call *call, const ln_buffers *b, int output, int64_t at, int64_t n, const float *x) {
    if (output < call->n_outputs && b->outputs[output] != NULL)
        memcpy((float *)b->outputs[output] + at, x, (size_t)n * sizeof *x);
}

/* Phase 0 of batches: writes the panels of a block. */
static void prepare(const ln_call *call, const ln_buffers *b, const places *p, int64_t width, int64_t d,
                    int64_t first) {
    const ln_recurrent *plan = call->state;
    const int64_t hidden = plan->hidden, n = ln_min(width, hidden - first);
    float *panel = p->panels + (d * plan->padded + first) * plan->gates * hidden;
    for (int64_t gate = 0; gate < plan->gates; gate++, panel += hidden * width) {
        const float *w =
            (const float *)b->inputs[LN_RECURRENT_WEIGHTS] + ((d * plan->gates + gate) * hidden + first) * hidden;
        if (n < width) memset(panel, 0, (size_t)(hidden * width) * sizeof *panel);
        ln_gemm_pack_transposed(w, hidden, hidden, n, width, panel);
    }
}

/* Phase 0: reads the initial states of a block. */
static void begin_states(const ln_call *call, const ln_buffers *b, const places *p, int64_t width, int64_t d,
                         int64_t first) {
    const ln_recurrent *plan = call->state;
    const int64_t hidden = plan->hidden, n = ln_min(width, hidden - first);
    for (int64_t row = 0; row < plan->batch; row++) {
        const int64_t at = (row * plan->directions + d) * plan->padded + first, from = (d * plan->batch + row) * hidden;
        take(call, b, LN_RECURRENT_STATE_H, from + first, n, width, p->h + at);
        take(call, b, LN_RECURRENT_STATE_C, from + first, n, width, p->c + at);
    }
}

/* Computes one step of one row: units [first, first + n), whose products with the state are in s->products. */
static void step_row(const cell *s, const ln_call *call, const ln_buffers *b, const places *p, int64_t step, int64_t d,
                     int64_t row, int64_t first, int64_t n) {
    const ln_recurrent *plan = call->state;
    const int64_t width = s->padded, hidden = plan->hidden, steps = plan->directions * plan->batch * hidden;
    const bool backwards = s->attributes->direction == LN_RECURRENT_DIRECTION_REVERSE || d == 1;
    const int64_t t = backwards ? plan->time - 1 - step : step;
    const int64_t gates_at = ((t * plan->batch + row) * plan->directions + d) * plan->gates * hidden + first;
    const int64_t state = (row * plan->directions + d) * plan->padded + first;
    const int64_t state_at = (d * plan->batch + row) * hidden + first;
    _Alignas(64) float gates[4 * WIDTH] = {0}, spare[WIDTH] = {0};
    float *h = p->h + ((step + 1) & 1) * p->state + state, *c = p->c + state;
    const float *y = h, *cells = c;
    memcpy(h, p->h + (step & 1) * p->state + state, (size_t)width * sizeof *h);
    if (t < ln_recurrent_length(call, b, LN_RECURRENT_LENGTHS, row, plan->time)) {
        for (int64_t k = 0; k < plan->gates; k++) take(call, b, 0, gates_at + k * hidden, n, width, gates + k * width);
        take_step(s, gates, h, c, spare);
        cells = kept(s->attributes, c, spare);
    } else {
        y = cells = spare;
    }
    give(call, b, 0, t * steps + state_at, n, y);
    give(call, b, LN_RECURRENT_CELLS, t * steps + state_at, n, cells);
    for (int64_t k = 0; k < plan->gates; k++)
        give(call, b, LN_RECURRENT_GATES, gates_at + k * hidden, n, gates + k * width);
    if (step < plan->time - 1) return;
    give(call, b, 1, state_at, n, h);
    give(call, b, 2, state_at, n, c);
}

/* The peepholes and the bias of a block. */
typedef struct lines {
    _Alignas(64) float peepholes[3 * WIDTH], bias[WIDTH];
} lines;

static cell cell_of(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b, int64_t d,
                    int64_t first, int64_t width, lines *of) {
    const ln_recurrent *plan = call->state;
    const int64_t hidden = plan->hidden, n = ln_min(width, hidden - first);
    const ln_recurrent_attributes *a = call->attributes;
    cell s = {.attributes = a,
              .hidden = width,
              .padded = width,
              .clip = (float)a->clip,
              .bias = of->bias,
              .vectors = vectors};
    for (int i = 0; i < 3; i++) s.activations[i] = ln_recurrent_activation_of(a, d, i);
    for (int64_t k = 0; k < 3; k++)
        take(call, b, LN_RECURRENT_PEEPHOLES, (3 * d + k) * hidden + first, n, width, of->peepholes + k * width);
    if (ln_recurrent_has(call, LN_RECURRENT_PEEPHOLES)) s.peepholes = of->peepholes;
    take(call, b, LN_RECURRENT_BIAS, d * hidden + first, n, width, of->bias);
    return s;
}

/* Computes one step of all rows for a block of units, with weights that were packed before the run. */
static void step_units(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b, const places *p,
                       int64_t step, int64_t d, int64_t first, float *levels) {
    const ln_recurrent *plan = call->state;
    const int64_t width = vectors->panel, n = ln_min(width, plan->hidden - first);
    lines of;
    cell s = cell_of(vectors, call, b, d, first, width, &of);
    bind_weights(&s, call, b, d);
    s.weights += first * column_bytes(call);
    if (s.scales != NULL) s.scales += first;
    s.levels = levels;
    for (int64_t row = 0; row < plan->batch; row++) {
        s.state = p->h + (step & 1) * p->state + (row * plan->directions + d) * plan->padded;
        step_row(&s, call, b, p, step, d, row, first, n);
    }
}

/* Computes one step of all rows of a batch for a block of units. */
static void step_block(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b, const places *p,
                       int64_t step, int64_t d, int64_t first, float *products) {
    const ln_recurrent *plan = call->state;
    const ln_gemm_set *set = vectors->set;
    const int64_t width = set->width, hidden = plan->hidden, n = ln_min(width, hidden - first);
    static const float zeros[WIDTH];
    lines of;
    cell s = cell_of(vectors, call, b, d, first, width, &of);
    const void *rows[LN_GEMM_MAX_ROWS];
    ln_gemm_tile tile = {.a = rows,
                         .taps = 1,
                         .kc = hidden,
                         .a_step = 1,
                         .b_step = width * (int64_t)sizeof(float),
                         .ldc = plan->gates * width,
                         .columns = width,
                         .init = zeros,
                         .low = -INFINITY,
                         .high = INFINITY};
    for (int64_t row = 0; row < plan->batch;) {
        const int64_t tile_rows = ln_gemm_tile_rows(set, plan->batch - row);
        for (int64_t i = 0; i < tile_rows; i++)
            rows[i] = p->h + (step & 1) * p->state + ((row + i) * plan->directions + d) * plan->padded;
        for (int64_t gate = 0; gate < plan->gates; gate++) {
            tile.b = p->panels + ((d * plan->padded + first) * plan->gates + gate * width) * hidden;
            tile.c = products + gate * width;
            set->full[tile_rows](&tile);
        }
        for (int64_t i = 0; i < tile_rows; i++, row++) {
            s.products = products + i * plan->gates * width;
            step_row(&s, call, b, p, step, d, row, first, n);
        }
    }
}

static bool lengths_fit(const ln_call *call, const ln_buffers *b) {
    const ln_recurrent *plan = call->state;
    bool fit = true;
    for (int64_t row = 0; row < plan->batch && fit; row++)
        fit = ln_recurrent_length(call, b, LN_RECURRENT_LENGTHS, row, plan->time) >= 0;
    return fit;
}

linnet_status ln_recurrent_batch_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                     int phase, int64_t begin, int64_t end, int thread) {
    const ln_recurrent *plan = call->state;
    const places p = places_of(plan, true, b->scratch);
    float *products = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const int64_t width = vectors->set->width;
    if (phase == 0 && !lengths_fit(call, b)) return LINNET_INDEX_OUT_OF_RANGE;
    for (int64_t item = begin; item < end; item++) {
        const int64_t d = item / plan->blocks, first = item % plan->blocks * width;
        if (phase > 0) {
            step_block(vectors, call, b, &p, phase - 1, d, first, products);
            continue;
        }
        prepare(call, b, &p, width, d, first);
        begin_states(call, b, &p, width, d, first);
    }
    return LINNET_OK;
}

/* With fewer rows than threads, the first phase reads the states. Each further phase computes one step, and its items
 * are blocks of units. The results are the same, bit by bit, as those of whole rows. */
linnet_status ln_recurrent_packed_configure(ln_call *call, const ln_recurrent_vectors *vectors) {
    const linnet_status status = ln_recurrent_configure(call, vectors->panel, sizeof(float));
    if (status != LINNET_OK) return status;
    ln_recurrent *plan = call->state;
    const int64_t column = column_bytes(call) + (narrow(call) ? (int64_t)sizeof(float) : 0);
    call->packed_bytes = (size_t)(plan->directions * plan->gates * plan->padded * column);
    if (plan->batch * plan->directions >= call->threads || plan->padded < 2 * vectors->panel || !in_blocks(call))
        return LINNET_OK;
    plan->blocks = plan->padded / vectors->panel;
    call->scratch_bytes = (size_t)places_of(plan, false, NULL).all * sizeof(float);
    call->scratch_thread = narrow(call) ? (size_t)plan->padded * sizeof(float) : 0;
    call->phases = (int)plan->time + 1;
    call->work[0] = call->work[1] = plan->directions * plan->blocks;
    return LINNET_OK;
}

linnet_status ln_recurrent_packed_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                      int phase, int64_t begin, int64_t end, int thread) {
    const ln_recurrent *plan = call->state;
    if (plan->blocks == 0) return run_rows(vectors, call, b, begin, end, thread);
    const places p = places_of(plan, false, b->scratch);
    if (phase == 0 && !lengths_fit(call, b)) return LINNET_INDEX_OUT_OF_RANGE;
    for (int64_t item = begin; item < end; item++) {
        const int64_t d = item / plan->blocks, first = item % plan->blocks * vectors->panel;
        if (phase == 0)
            begin_states(call, b, &p, vectors->panel, d, first);
        else
            step_units(vectors, call, b, &p, phase - 1, d, first,
                       (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride));
    }
    return LINNET_OK;
}
