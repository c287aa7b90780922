/* recurrent.c - shape rule and scalar reference of `recurrent` (RNN, GRU, LSTM), in double for every dtype.
 * The fast kernel is in recurrent_f32.c; both compile recurrent_steps.inc. */
#include "ops/recurrent.h"

#include "kernel/common/quant_unpack.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <math.h>
#include <string.h>

static const int gates_of[] = {1, 3, 4}, activations_per[] = {1, 2, 3};

static linnet_status wrong_shape(const ln_infer *infer, const char *what, const int64_t *want, int rank,
                                 const ln_tensor *got) {
    char expected[96], text[96];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "recurrent: the shape of %s does not match the other operands", what);
    ln_expected(infer->error, "%s", ln_shape_text(want, rank, expected, sizeof expected));
    return ln_got(infer->error, "%s", ln_shape_text(got->dims, got->rank, text, sizeof text));
}

linnet_status ln_recurrent_check(const ln_infer *infer, int i, const char *what, int dtype, int rank,
                                 const int64_t *want) {
    const ln_tensor *t = &infer->inputs[i];
    if (i >= infer->n_inputs || t->dtype == LINNET_NONE) return LINNET_OK;
    if (t->dtype != dtype && (dtype != LINNET_I32 || t->dtype != LINNET_I64)) {
        ln_fail(infer->error, LINNET_WRONG_DTYPE, "recurrent: %s has the wrong dtype", what);
        ln_expected(infer->error, "%s", linnet_dtype_name(dtype));
        return ln_got(infer->error, "%s", linnet_dtype_name(t->dtype));
    }
    if (t->rank < 0) return LINNET_OK;
    bool fits = t->rank == rank;
    for (int d = 0; fits && d < rank; d++) fits = want[d] < 0 || t->dims[d] < 0 || t->dims[d] == want[d];
    return fits ? LINNET_OK : wrong_shape(infer, what, want, rank, t);
}

static bool narrow(const ln_tensor *weights) { return weights->dtype == LINNET_I8; }

/* Weights of 8 bits represent real numbers. All weights of a row have the same scale. */
static linnet_status check_narrow(const ln_infer *infer) {
    const ln_tensor *w = &infer->inputs[LN_RECURRENT_WEIGHTS];
    const ln_quant *q = w->quant;
    bool good = ln_quant_has_values(w);
    for (uint32_t i = 0; good && q->zero != NULL && i < q->count; i++) good = q->zero[i] == 0;
    if (good && w->rank == 3 && q->scheme != LN_QUANT_TENSOR)
        good = q->scheme == LN_QUANT_AXIS ? q->axis < 2 : q->axis == 2 && (int64_t)q->block >= w->dims[2];
    if (good) return LINNET_OK;
    ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "recurrent: the quantization of the 8-bit weights does not fit");
    ln_expected(infer->error, "zero points of 0, and one scale for each row");
    if (q == NULL) return ln_got(infer->error, "no quantization");
    return ln_got(infer->error, "%u scales along axis %d, blocks of %u", (unsigned)q->count, (int)q->axis,
                  (unsigned)q->block);
}

static linnet_status check_attributes(const ln_infer *infer, int64_t directions) {
    const ln_recurrent_attributes *a = infer->attributes;
    const int64_t count = directions * activations_per[a->kind];
    bool good = a->clip >= 0 && (a->activations.n == 0 || a->activations.n == count);
    good = good && (a->alpha.n == 0 || a->alpha.n == a->activations.n) &&
           (a->beta.n == 0 || a->beta.n == a->activations.n);
    for (int64_t i = 0; good && i < a->activations.n; i++)
        good = a->activations.v[i] >= 0 && a->activations.v[i] < LN_ACTIVATION_COUNT;
    if (good) return LINNET_OK;
    ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "recurrent: activations, alpha, beta or clip is wrong");
    ln_expected(infer->error, "%lld activations from 0 to %d, as many alpha and beta, clip at least 0",
                (long long)count, LN_ACTIVATION_COUNT - 1);
    return ln_got(infer->error, "%lld, %lld and %lld, clip %g", (long long)a->activations.n, (long long)a->alpha.n,
                  (long long)a->beta.n, a->clip);
}

linnet_status ln_infer_recurrent(const ln_infer *infer) {
    const ln_recurrent_attributes *a = infer->attributes;
    const ln_tensor *p = &infer->inputs[0], *w = &infer->inputs[1];
    const int64_t directions = a->direction == LN_RECURRENT_DIRECTION_BIDIRECTIONAL ? 2 : 1;
    linnet_status status = check_attributes(infer, directions);
    if (status != LINNET_OK) return status;
    int64_t time = p->rank == 3 ? p->dims[0] : -1, batch = p->rank == 3 ? p->dims[1] : -1;
    int64_t hidden = w->rank == 3 ? w->dims[2] : -1;
    const int64_t gates = gates_of[a->kind];
    if (hidden < 0 && p->rank == 3 && p->dims[2] >= 0) hidden = p->dims[2] / (directions * gates);
    if (hidden > (int64_t)(LN_MOST_BYTES / 64))
        return ln_fail(infer->error, LINNET_TOO_LARGE, "recurrent: too many hidden units");
    const int64_t width = hidden < 0 ? -1 : hidden * gates;
    const struct {
        const char *name;
        int rank;
        int64_t dims[3];
    } operands[] = {{"p", 3, {time, batch, width < 0 ? -1 : width * directions}},
                    {"weights", 3, {directions, width, hidden}},
                    {"initial_h", 3, {directions, batch, hidden}},
                    {"initial_c", 3, {directions, batch, hidden}},
                    {"lengths", 1, {batch, 0, 0}},
                    {"peepholes", 2, {directions, hidden < 0 ? -1 : 3 * hidden, 0}},
                    {"bias", 2, {directions, hidden, 0}}};
    if (narrow(w)) status = check_narrow(infer);
    if (status != LINNET_OK) return status;
    for (int i = 0; i < infer->n_inputs && i < 7; i++) {
        const bool own = i == LN_RECURRENT_WEIGHTS && narrow(w);
        const int dtype = own ? LINNET_I8 : i == LN_RECURRENT_LENGTHS ? LINNET_I32 : p->dtype;
        status = ln_recurrent_check(infer, i, operands[i].name, dtype, operands[i].rank, operands[i].dims);
        if (status != LINNET_OK) return status;
    }
    for (int o = 0; o < infer->n_outputs; o++) {
        ln_tensor *y = &infer->outputs[o];
        const int64_t dims[] = {time, directions, batch, hidden};
        const bool steps = o == 0 || o == LN_RECURRENT_CELLS;
        y->dtype = p->dtype;
        y->rank = (int8_t)(steps ? 4 : 3);
        memcpy(y->dims, o == LN_RECURRENT_GATES ? operands[0].dims : dims + !steps, (size_t)y->rank * sizeof *dims);
    }
    return LINNET_OK;
}

/* Each gate has a product of the state with its weights, and an activation of about twelve operations. */
void ln_count_recurrent(const ln_call *call, ln_counts *counts) {
    const ln_tensor *p = &call->inputs[LN_RECURRENT_P], *w = &call->inputs[LN_RECURRENT_WEIGHTS];
    const double lines = (double)(p->dims[0] * p->dims[1]) * (double)(w->dims[0] * w->dims[1]);
    ln_count_macs(call, counts, lines * (double)w->dims[2]);
    counts->work[LN_RATE_MAP] += 12 * lines;
}

linnet_status ln_recurrent_configure(ln_call *call, int64_t pad_to, size_t element) {
    const ln_tensor *p = &call->inputs[0];
    ln_recurrent *plan = call->state = ln_call_state(call, sizeof *plan);
    if (plan == NULL) return LINNET_OUT_OF_MEMORY;
    plan->time = p->dims[0];
    plan->batch = p->dims[1];
    plan->directions = call->inputs[1].dims[0];
    plan->hidden = call->inputs[1].dims[2];
    plan->gates = gates_of[((const ln_recurrent_attributes *)call->attributes)->kind];
    plan->padded = (int64_t)ln_round_up((size_t)plan->hidden, (size_t)pad_to);
    call->work[0] = plan->directions * plan->batch;
    call->scratch_thread = (size_t)(LN_RECURRENT_LINES * plan->padded) * element;
    call->flops = (uint64_t)(2 * plan->time * call->work[0] * plan->gates) * (uint64_t)(plan->hidden * plan->hidden);
    return LINNET_OK;
}

int64_t ln_recurrent_length(const ln_call *call, const ln_buffers *b, int operand, int64_t row, int64_t time) {
    if (!ln_recurrent_has(call, operand)) return time;
    const ln_tensor *t = &call->inputs[operand];
    const int64_t length = ln_load_i64(b->inputs[operand], t->dtype, row * t->strides[0]);
    if (length >= 0 && length <= time) return length;
    ln_index_error(b, "lengths", length, 0, time);
    return -1;
}

ln_recurrent_activation ln_recurrent_activation_of(const ln_recurrent_attributes *a, int64_t direction, int index) {
    const int per = activations_per[a->kind];
    ln_recurrent_activation f = {
        a->kind != LN_RECURRENT_KIND_RNN && index == 0 ? LN_ACTIVATION_SIGMOID : LN_ACTIVATION_TANH, 0, 0};
    if (index >= per || a->activations.n == 0) return f;
    const int64_t at = direction * per + index;
    f.kind = (int)a->activations.v[at];
    if (a->alpha.n > 0) f.alpha = a->alpha.v[at];
    if (a->beta.n > 0) f.beta = a->beta.v[at];
    return f;
}

double ln_recurrent_activate(const ln_recurrent_activation *f, double x) {
    switch (f->kind) {
    case LN_ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    case LN_ACTIVATION_TANH: return tanh(x);
    case LN_ACTIVATION_RELU: return x > 0 ? x : 0;
    case LN_ACTIVATION_AFFINE: return f->alpha * x + f->beta;
    case LN_ACTIVATION_LEAKY_RELU: return x >= 0 ? x : f->alpha * x;
    case LN_ACTIVATION_THRESHOLDED_RELU: return x >= f->alpha ? x : 0;
    case LN_ACTIVATION_SCALED_TANH: return f->alpha * tanh(f->beta * x);
    case LN_ACTIVATION_HARD_SIGMOID: return fmin(fmax(f->alpha * x + f->beta, 0), 1);
    case LN_ACTIVATION_ELU: return x >= 0 ? x : f->alpha * expm1(x);
    case LN_ACTIVATION_SOFTSIGN: return x / (1 + fabs(x));
    default: return x > 30 ? x : log1p(exp(x)); /* softplus */
    }
}

#define REAL double

typedef struct cell {
    const ln_recurrent_attributes *attributes;
    int64_t hidden, padded;
    ln_recurrent_activation activations[3];
    double clip;
    const double *peepholes, *bias;
    const ln_recurrent_vectors *vectors; /* NULL: the reference has no loops of an ISA */
    const ln_tensor *t;
    const void *weights;
    int64_t at;
    int64_t line;   /* number of the direction's first row of weights */
    double *levels; /* a line for the integers of a state */
} cell;

static void bind_weights(cell *s, const ln_call *call, const ln_buffers *b, int64_t direction) {
    s->t = &call->inputs[LN_RECURRENT_WEIGHTS];
    s->weights = b->inputs[LN_RECURRENT_WEIGHTS];
    s->at = direction * s->t->strides[0];
    s->line = direction * s->t->dims[1];
}

static void fetch(const ln_tensor *t, const void *data, int64_t at, int64_t n, double *out) {
    const int64_t step = t->strides[t->rank - 1];
    for (int64_t i = 0; i < n; i++) out[i] = ln_load_f64(data, t->dtype, at + i * step);
}

static void put(const ln_tensor *t, void *data, int64_t at, int64_t n, const double *x) {
    const int64_t step = t->strides[t->rank - 1];
    for (int64_t i = 0; i < n; i++) ln_store_f64(data, t->dtype, at + i * step, x[i]);
}

/* Rounds a state to integers for weights of 8 bits, and returns their scale. The fast kernels do the same in f32, with
 * the same integers. If a number is not finite, all products are NaN. */
static double round_state(int64_t n, const double *x, double *levels) {
    float most = 0, odd = 0;
    for (int64_t k = 0; k < n; k++) {
        const float size = fabsf((float)x[k]);
        most = size > most ? size : most;
        odd += size * 0;
    }
    const float inverse = most >= LN_RECURRENT_LEAST ? (float)LN_RECURRENT_LEVELS / most : 0;
    for (int64_t k = 0; k < n; k++) levels[k] = (double)rintf((float)x[k] * inverse);
    return (double)((inverse > 0 ? most / (float)LN_RECURRENT_LEVELS : 0) + odd);
}

static void multiply(const cell *s, int64_t first, int64_t n, const double *x, double *y) {
    const ln_tensor *t = s->t;
    const double unit = narrow(t) ? round_state(s->hidden, x, s->levels) : 1;
    const double *by = narrow(t) ? s->levels : x;
    for (int64_t gate = 0; gate < n; gate++)
        for (int64_t i = 0; i < s->hidden; i++) {
            const int64_t line = (first + gate) * s->hidden + i, row = s->at + line * t->strides[1];
            double sum = narrow(t) ? 0 : y[gate * s->padded + i];
            for (int64_t k = 0; k < s->hidden; k++)
                sum += by[k] * ln_load_f64(s->weights, t->dtype, row + k * t->strides[2]);
            y[gate * s->padded + i] =
                narrow(t) ? y[gate * s->padded + i] + sum * (unit * (double)ln_quant_line_scale(t, s->line + line))
                          : sum;
        }
}

static void activate(const cell *s, int index, double clip, double *x) {
    for (int64_t i = 0; i < s->hidden; i++)
        x[i] = ln_recurrent_activate(&s->activations[index], clip > 0 ? fmin(fmax(x[i], -clip), clip) : x[i]);
}

#include "ops/recurrent_steps.inc"

static bool can(const ln_call *call) { return ln_dtype_is_float(call->inputs[0].dtype); }

static linnet_status configure(ln_call *call) { return ln_recurrent_configure(call, 1, sizeof(double)); }

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    return run_rows(NULL, call, b, begin, end, thread);
}

const ln_kernel_code ln_reference_recurrent = {.can = can, .configure = configure, .run = run};
