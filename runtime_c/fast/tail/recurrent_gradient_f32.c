/* recurrent_gradient_f32.c - backpropagation through time in f32, for all rows of a batch together. Each step computes
   one product of the gates' gradients with the weights, which are packed once. It then applies the derivatives of the
   cell to the product while the product is in the cache. */
#include "fast/tail/recurrent_gradient_f32.h"

#include "fast/tail/recurrent_f32.h"
#include "kernel/step.h"

#include <math.h>
#include <string.h>

#define REAL float
#include "ops/recurrent_back.inc"

enum { WIDTH = 64 }; /* the largest number of columns of a panel */

/* Scratch: the weights in panels [direction][block][gates * hidden][width]; dq of this step and of the following one,
 * [2][batch][direction][gates * hidden]; gradients of h and c, [batch][direction][padded]. dq is the gradient of the
 * products of the gates with the state. */
typedef struct places {
    float *panels, *dq, *dh, *dc;
    int64_t width, line; /* width: columns of a panel; line: numbers per direction and row, gates * hidden */
    int64_t directions, batch, padded;
    int64_t all; /* floats in the whole scratch; set even if `scratch` is NULL */
} places;

static places places_of(const ln_recurrent *plan, int64_t width, void *scratch) {
    places p = {.width = width, .line = plan->gates * plan->hidden, .directions = plan->directions};
    p.batch = plan->batch, p.padded = plan->padded;
    const int64_t panels = p.directions * p.line * p.padded, dq = 2 * p.batch * p.directions * p.line;
    const int64_t state = p.batch * p.directions * p.padded;
    p.all = panels + dq + 2 * state;
    if (scratch == NULL) return p;
    p.panels = scratch;
    p.dq = p.panels + panels;
    p.dh = p.dq + dq;
    p.dc = p.dh + state;
    return p;
}

static float *dq_at(const places *p, int64_t step, int64_t row, int64_t d) {
    return p->dq + (((step & 1) * p->batch + row) * p->directions + d) * p->line;
}

bool ln_recurrent_gradient_can(const ln_call *call) {
    const ln_tensor *gates = &call->inputs[LN_GRAD_GATES];
    return gates->dims[0] > 0 && gates->dims[1] > 0 && call->inputs[LN_GRAD_WEIGHTS].dims[2] > 0 &&
           gates->dims[0] < INT32_MAX - 2 && ln_recurrent_dense_f32(call, 1u << LN_GRAD_LENGTHS);
}

linnet_status ln_recurrent_gradient_configure(ln_call *call, const ln_recurrent_vectors *vectors) {
    const ln_tensor *w = &call->inputs[LN_GRAD_WEIGHTS], *gates = &call->inputs[LN_GRAD_GATES];
    ln_recurrent *plan = call->state = ln_call_state(call, sizeof *plan);
    if (plan == NULL) return LINNET_OUT_OF_MEMORY;
    *plan = (ln_recurrent){.time = gates->dims[0],
                           .batch = gates->dims[1],
                           .directions = w->dims[0],
                           .hidden = w->dims[2],
                           .gates = w->dims[1] / w->dims[2]};
    const int64_t width = vectors->set->width;
    plan->blocks = ln_ceil_div(plan->hidden, width), plan->padded = plan->blocks * width;
    const places p = places_of(plan, width, NULL);
    call->scratch_bytes = (size_t)p.all * sizeof(float);
    call->phases = (int)plan->time + 2;
    call->work[0] = call->work[1] = plan->directions * plan->blocks;
    call->flops = (uint64_t)(2 * plan->time * plan->batch) * (uint64_t)(plan->directions * p.line * plan->hidden);
    return LINNET_OK;
}

/* Reads a block of n numbers of the state and appends zeros up to `width`. An absent operand is read as zeros. */
static void fetch(const ln_call *call, const ln_buffers *b, int operand, int64_t at, int64_t n, int64_t width,
                  float *out) {
    const bool has = ln_recurrent_has(call, operand);
    if (has) memcpy(out, (const float *)b->inputs[operand] + at, (size_t)n * sizeof *out);
    memset(out + (has ? n : 0), 0, (size_t)(has ? width - n : width) * sizeof *out);
}

static void put(const ln_call *call, const ln_buffers *b, int output, int64_t at, int64_t n, const float *x) {
    if (output < call->n_outputs && b->outputs[output] != NULL)
        memcpy((float *)b->outputs[output] + at, x, (size_t)n * sizeof *x);
}

/* Phase 0: writes a panel of weights, and the gradients of the last states. */
static void prepare(const ln_call *call, const ln_buffers *b, const places *p, int64_t d, int64_t first, int64_t n) {
    const ln_recurrent *plan = call->state;
    const float *w = (const float *)b->inputs[LN_GRAD_WEIGHTS] + d * p->line * plan->hidden + first;
    float *panel = p->panels + (d * p->padded + first) * p->line;
    for (int64_t k = 0; k < p->line; k++, w += plan->hidden, panel += p->width) {
        memcpy(panel, w, (size_t)n * sizeof *panel);
        memset(panel + n, 0, (size_t)(p->width - n) * sizeof *panel);
    }
    for (int64_t row = 0; row < p->batch; row++) {
        const int64_t at = (row * p->directions + d) * p->padded + first, from = (d * p->batch + row) * plan->hidden;
        fetch(call, b, LN_GRAD_DY_H, from + first, n, p->width, p->dh + at);
        fetch(call, b, LN_GRAD_DY_C, from + first, n, p->width, p->dc + at);
    }
}

/* Multiplies dq of the following step by the weights, and adds the product to dh, for all rows and a block of columns.
 */
static void multiply(const ln_gemm_set *set, const places *p, int64_t step, int64_t d, int64_t first) {
    const void *rows[LN_GEMM_MAX_ROWS];
    ln_gemm_tile tile = {.a = rows,
                         .taps = 1,
                         .kc = p->line,
                         .a_step = 1,
                         .b = p->panels + (d * p->padded + first) * p->line,
                         .b_step = p->width * (int64_t)sizeof(float),
                         .ldc = p->directions * p->padded,
                         .columns = p->width,
                         .low = -INFINITY,
                         .high = INFINITY};
    for (int64_t row = 0; row < p->batch;) {
        const int64_t n = ln_gemm_tile_rows(set, p->batch - row);
        for (int64_t i = 0; i < n; i++) rows[i] = dq_at(p, step - 1, row + i, d);
        tile.c = p->dh + (row * p->directions + d) * p->padded + first;
        set->full[n](&tile);
        row += n;
    }
}

/* Computes one step of one row for a block of n units. */
static void row_back(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b, const places *p,
                     int64_t step, int64_t d, int64_t row, int64_t first, int64_t n) {
    const ln_recurrent *plan = call->state;
    const ln_recurrent_gradient_attributes *a = call->attributes;
    const int64_t width = p->width, hidden = plan->hidden;
    const bool backwards = a->direction == LN_RECURRENT_GRADIENT_DIRECTION_REVERSE || d == 1;
    const bool lstm = a->kind == LN_RECURRENT_GRADIENT_KIND_LSTM;
    const int64_t t = backwards ? step : plan->time - 1 - step, earlier = backwards ? t + 1 : t - 1;
    const int64_t length = ln_recurrent_length(call, b, LN_GRAD_LENGTHS, row, plan->time);
    const int64_t gates_at = ((t * p->batch + row) * p->directions + d) * p->line + first;
    const int64_t state_at = (d * p->batch + row) * hidden + first, steps = p->directions * p->batch * hidden;
    _Alignas(64) float gates[4 * WIDTH], dp[4 * WIDTH], dq[4 * WIDTH], cell[WIDTH], before[WIDTH], dy[WIDTH];
    float *dh = p->dh + (row * p->directions + d) * p->padded + first;
    if (t < length) {
        for (int64_t k = 0; k < plan->gates; k++)
            fetch(call, b, LN_GRAD_GATES, gates_at + k * hidden, n, width, gates + k * width);
        fetch(call, b, LN_GRAD_DY, t * steps + state_at, n, width, dy);
        for (int64_t k = 0; k < width; k++) dy[k] += dh[k];
        fetch(call, b, LN_GRAD_CELLS, t * steps + state_at, n, width, cell);
        if (lstm) vectors->activate(true, 0, cell, width);
        if (earlier >= 0 && earlier < length)
            fetch(call, b, lstm ? LN_GRAD_CELLS : LN_GRAD_Y, earlier * steps + state_at, n, width, before);
        else
            fetch(call, b, lstm ? LN_GRAD_STATE_C : LN_GRAD_STATE_H, state_at, n, width, before);
        const back_step s = {.n = width,
                             .line = width,
                             .gates = gates,
                             .cell = cell,
                             .before = before,
                             .dh = dy,
                             .dc = p->dc + (dh - p->dh),
                             .dp = dp,
                             .dq = dq,
                             .dh_plain = dh,
                             .relu = a->relu};
        step_back(&s, a->kind);
    } else {
        memset(dp, 0, sizeof dp), memset(dq, 0, sizeof dq);
    }
    for (int64_t k = 0; k < plan->gates; k++) {
        memcpy(dq_at(p, step, row, d) + k * hidden + first, dq + k * width, (size_t)n * sizeof *dq);
        put(call, b, LN_GRAD_DP, gates_at + k * hidden, n, dp + k * width);
        put(call, b, LN_GRAD_DQ, gates_at + k * hidden, n, dq + k * width);
    }
}

linnet_status ln_recurrent_gradient_run(const ln_recurrent_vectors *vectors, const ln_call *call, const ln_buffers *b,
                                        int phase, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const ln_recurrent *plan = call->state;
    const places p = places_of(plan, vectors->set->width, b->scratch);
    for (int64_t row = 0; phase == 0 && row < p.batch; row++)
        if (ln_recurrent_length(call, b, LN_GRAD_LENGTHS, row, plan->time) < 0) return LINNET_INDEX_OUT_OF_RANGE;
    for (int64_t item = begin; item < end; item++) {
        const int64_t d = item / plan->blocks, first = item % plan->blocks * p.width, step = phase - 1;
        const int64_t n = ln_min(p.width, plan->hidden - first);
        if (phase == 0) {
            prepare(call, b, &p, d, first, n);
            continue;
        }
        if (step > 0) multiply(vectors->set, &p, step, d, first);
        for (int64_t row = 0; row < p.batch; row++) {
            const int64_t at = (row * p.directions + d) * p.padded + first;
            if (step < plan->time) {
                row_back(vectors, call, b, &p, step, d, row, first, n);
                continue;
            }
            put(call, b, LN_GRAD_DH, (d * p.batch + row) * plan->hidden + first, n, p.dh + at);
            put(call, b, LN_GRAD_DC, (d * p.batch + row) * plan->hidden + first, n, p.dc + at);
        }
    }
    return LINNET_OK;
}
