/* recurrent_gradient.c - shape rule and scalar reference of `recurrent_gradient`, in double for every dtype.
 * The fast kernel is in recurrent_gradient_f32.c; both compile recurrent_back.inc. */
#include "kernel/cost.h"
#include "ops/recurrent.h"

#include <math.h>
#include <string.h>

linnet_status ln_infer_recurrent_gradient(const ln_infer *infer) {
    static const int64_t gates_of[] = {1, 3, 4};
    const ln_recurrent_gradient_attributes *a = infer->attributes;
    const ln_tensor *w = &infer->inputs[LN_GRAD_WEIGHTS], *g = &infer->inputs[LN_GRAD_GATES];
    const int64_t directions = a->direction == LN_RECURRENT_GRADIENT_DIRECTION_BIDIRECTIONAL ? 2 : 1;
    const int64_t time = g->rank == 3 ? g->dims[0] : -1, batch = g->rank == 3 ? g->dims[1] : -1;
    const int64_t hidden = w->rank == 3 ? w->dims[2] : -1;
    if (hidden > (int64_t)(LN_MOST_BYTES / 64))
        return ln_fail(infer->error, LINNET_TOO_LARGE, "recurrent_gradient: too many hidden units");
    const int64_t width = hidden < 0 ? -1 : hidden * gates_of[a->kind], all = width < 0 ? -1 : width * directions;
    const struct {
        const char *name;
        int rank;
        int64_t dims[4];
        bool needed;
    } operands[] = {{"weights", 3, {directions, width, hidden}, true},
                    {"gates", 3, {time, batch, all}, true},
                    {"y", 4, {time, directions, batch, hidden}, a->kind == LN_RECURRENT_GRADIENT_KIND_GRU},
                    {"cells", 4, {time, directions, batch, hidden}, a->kind != LN_RECURRENT_GRADIENT_KIND_RNN},
                    {"initial_h", 3, {directions, batch, hidden}, false},
                    {"initial_c", 3, {directions, batch, hidden}, false},
                    {"lengths", 1, {batch}, false},
                    {"dy", 4, {time, directions, batch, hidden}, false},
                    {"dy_h", 3, {directions, batch, hidden}, false},
                    {"dy_c", 3, {directions, batch, hidden}, false}};
    for (int i = 0; i < (int)(sizeof operands / sizeof *operands); i++) {
        if (operands[i].needed && (i >= infer->n_inputs || infer->inputs[i].dtype == LINNET_NONE)) {
            ln_fail(infer->error, LINNET_MISSING_INPUT, "recurrent_gradient: operand %s is missing", operands[i].name);
            return ln_hint(infer->error, "pass the outputs y, gates and cells of the recurrent node");
        }
        if (i >= infer->n_inputs) continue;
        const linnet_status status =
            ln_recurrent_check(infer, i, operands[i].name, i == LN_GRAD_LENGTHS ? LINNET_I32 : infer->inputs[0].dtype,
                               operands[i].rank, operands[i].dims);
        if (status != LINNET_OK) return status;
    }
    for (int o = 0; o < infer->n_outputs; o++) {
        ln_tensor *y = &infer->outputs[o];
        const bool steps = o == LN_GRAD_DP || o == LN_GRAD_DQ;
        y->dtype = g->dtype;
        y->rank = 3;
        memcpy(y->dims, operands[steps ? LN_GRAD_GATES : LN_GRAD_STATE_H].dims, 3 * sizeof *y->dims);
    }
    return LINNET_OK;
}

void ln_count_recurrent_gradient(const ln_call *call, ln_counts *counts) {
    const ln_tensor *w = &call->inputs[LN_GRAD_WEIGHTS], *gates = &call->inputs[LN_GRAD_GATES];
    const double lines = (double)(gates->dims[0] * gates->dims[1]) * (double)(w->dims[0] * w->dims[1]);
    ln_count_macs(call, counts, lines * (double)w->dims[2]);
    counts->work[LN_RATE_MAP] += 12 * lines;
}

#define REAL double
#include "ops/recurrent_back.inc"

/* Reads n elements along the last dimension from element `at` on. An absent operand gives zeros. */
static void fetch(const ln_call *call, const ln_buffers *b, int operand, int64_t at, int64_t n, double *out) {
    if (!ln_recurrent_has(call, operand)) {
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    }
    const ln_tensor *t = &call->inputs[operand];
    for (int64_t i = 0; i < n; i++)
        out[i] = ln_load_f64(b->inputs[operand], t->dtype, at + i * t->strides[t->rank - 1]);
}

static void put(const ln_call *call, const ln_buffers *b, int output, int64_t at, int64_t n, const double *x) {
    if (output >= call->n_outputs || b->outputs[output] == NULL) return;
    const ln_tensor *t = &call->outputs[output];
    for (int64_t i = 0; i < n; i++) ln_store_f64(b->outputs[output], t->dtype, at + i * t->strides[t->rank - 1], x[i]);
}

/* step_at returns the offset of a row at one step of [time, directions, batch, hidden], and state_at that of a row's
 * initial or last state. Both return 0 if the operand is absent. */
static int64_t step_at(const ln_call *call, int operand, int64_t time, int64_t d, int64_t row) {
    if (!ln_recurrent_has(call, operand)) return 0;
    const int64_t *strides = call->inputs[operand].strides;
    return time * strides[0] + d * strides[1] + row * strides[2];
}
static int64_t state_of(const ln_tensor *t, int64_t d, int64_t row) { return d * t->strides[0] + row * t->strides[1]; }
static int64_t state_at(const ln_call *call, int operand, int64_t d, int64_t row) {
    return ln_recurrent_has(call, operand) ? state_of(&call->inputs[operand], d, row) : 0;
}

/* Multiplies dq by the weights, and adds the product to dh. */
static void through_weights(const ln_call *call, const ln_buffers *b, int64_t d, const double *dq, double *dh) {
    const ln_tensor *w = &call->inputs[LN_GRAD_WEIGHTS];
    for (int64_t i = 0; i < w->dims[1]; i++)
        for (int64_t k = 0; k < w->dims[2]; k++)
            dh[k] += dq[i] * ln_load_f64(b->inputs[LN_GRAD_WEIGHTS], w->dtype,
                                         d * w->strides[0] + i * w->strides[1] + k * w->strides[2]);
}

static void put_gates(const ln_call *call, const ln_buffers *b, int output, int64_t t, int64_t d, int64_t row,
                      const double *x) {
    if (output >= call->n_outputs) return;
    const int64_t *strides = call->outputs[output].strides, width = call->inputs[LN_GRAD_WEIGHTS].dims[1];
    put(call, b, output, t * strides[0] + row * strides[1] + d * width * strides[2], width, x);
}

static linnet_status run_row(const ln_call *call, const ln_buffers *b, int64_t d, int64_t row, double *scratch) {
    const ln_recurrent_gradient_attributes *a = call->attributes;
    const ln_tensor *in = call->inputs;
    const int64_t time = in[LN_GRAD_GATES].dims[0], width = in[LN_GRAD_WEIGHTS].dims[1],
                  n = in[LN_GRAD_WEIGHTS].dims[2];
    const int64_t length = ln_recurrent_length(call, b, LN_GRAD_LENGTHS, row, time);
    if (length < 0) return LINNET_INDEX_OUT_OF_RANGE;
    const bool backwards = a->direction == LN_RECURRENT_GRADIENT_DIRECTION_REVERSE || d == 1;
    const bool lstm = a->kind == LN_RECURRENT_GRADIENT_KIND_LSTM;
    const int state = lstm ? LN_GRAD_STATE_C : LN_GRAD_STATE_H, states = lstm ? LN_GRAD_CELLS : LN_GRAD_Y;
    double *gates = scratch, *dp = gates + width, *dq = dp + width, *total = dq + width, *dy = total + n;
    double *dc = dy + n, *cell = dc + n, *before = cell + n;
    const back_step step = {.n = n,
                            .line = n,
                            .gates = gates,
                            .cell = cell,
                            .before = before,
                            .dh = dy,
                            .dc = dc,
                            .dp = dp,
                            .dq = dq,
                            .dh_plain = total,
                            .relu = a->relu};
    /* `total` is the gradient of the state h, to which every step adds. */
    fetch(call, b, LN_GRAD_DY_H, state_at(call, LN_GRAD_DY_H, d, row), n, total);
    fetch(call, b, LN_GRAD_DY_C, state_at(call, LN_GRAD_DY_C, d, row), n, dc);
    memset(dp, 0, (size_t)width * sizeof *dp);
    for (int64_t t = length; t < time; t++) {
        put_gates(call, b, LN_GRAD_DP, t, d, row, dp);
        put_gates(call, b, LN_GRAD_DQ, t, d, row, dp);
    }
    for (int64_t at = 0; at < length; at++) {
        const int64_t t = backwards ? at : length - 1 - at, earlier = backwards ? t + 1 : t - 1;
        const int64_t *strides = in[LN_GRAD_GATES].strides;
        fetch(call, b, LN_GRAD_GATES, t * strides[0] + row * strides[1] + d * width * strides[2], width, gates);
        fetch(call, b, LN_GRAD_DY, step_at(call, LN_GRAD_DY, t, d, row), n, dy);
        for (int64_t k = 0; k < n; k++) dy[k] += total[k];
        fetch(call, b, LN_GRAD_CELLS, step_at(call, LN_GRAD_CELLS, t, d, row), n, cell);
        for (int64_t k = 0; k < n && lstm; k++) cell[k] = tanh(cell[k]);
        if (earlier >= 0 && earlier < length)
            fetch(call, b, states, step_at(call, states, earlier, d, row), n, before);
        else
            fetch(call, b, state, state_at(call, state, d, row), n, before);
        step_back(&step, a->kind);
        through_weights(call, b, d, dq, total);
        put_gates(call, b, LN_GRAD_DP, t, d, row, dp);
        put_gates(call, b, LN_GRAD_DQ, t, d, row, dq);
    }
    for (int o = LN_GRAD_DH; o <= LN_GRAD_DC && o < call->n_outputs; o++)
        put(call, b, o, o < call->n_outputs ? state_of(&call->outputs[o], d, row) : 0, n, o == LN_GRAD_DH ? total : dc);
    return LINNET_OK;
}

static bool can(const ln_call *call) { return ln_dtype_is_float(call->inputs[0].dtype); }

static linnet_status configure(ln_call *call) {
    const ln_tensor *w = &call->inputs[LN_GRAD_WEIGHTS], *gates = &call->inputs[LN_GRAD_GATES];
    call->work[0] = w->dims[0] * gates->dims[1];
    call->scratch_thread = (size_t)(3 * w->dims[1] + 5 * w->dims[2]) * sizeof(double);
    call->flops = (uint64_t)(2 * gates->dims[0] * call->work[0]) * (uint64_t)(w->dims[1] * w->dims[2]);
    return LINNET_OK;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    const int64_t batch = call->inputs[LN_GRAD_GATES].dims[1];
    double *scratch = (double *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    linnet_status status = LINNET_OK;
    for (int64_t item = begin; item < end && status == LINNET_OK; item++)
        status = run_row(call, b, item / batch, item % batch, scratch);
    return status;
}

const ln_kernel_code ln_reference_recurrent_gradient = {.can = can, .configure = configure, .run = run};
