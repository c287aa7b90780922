/* recurrent.c - RNN, GRU and LSTM: the kernel of recurrent.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

enum { RNN, GRU, LSTM };
enum { P, WEIGHTS, STATE_H, STATE_C, LENGTHS, PEEPHOLES, BIAS, ALL_INPUTS };
enum { Y, Y_H, Y_C, GATES, CELLS };
enum { ITEMS = 64, PER_ACTIVATION = 3 };
/* Bits of the argument `flags`. */
enum {
    HAS_H = 1,
    HAS_C = 2,
    HAS_LENGTHS = 4,
    HAS_PEEPHOLES = 8,
    HAS_BIAS = 16,
    LINEAR = 32,
    JOINED = 64,
    WANTS_H = 128,
    WANTS_C = 256
};

static int64_t units_of(const lg_step *s) {
    int64_t units = 64;
    while (units < s->inputs[WEIGHTS].shape[2]) units *= 2;
    return units;
}

bool lg_can_recurrent(const lg_step *s) {
    const linnet_device_tensor *p = &s->inputs[P];
    if (!lg_is_float(p->dtype) || s->n_inputs < 2 || s->inputs[WEIGHTS].dtype != p->dtype || !lg_can_store(s))
        return false;
    if (!lg_wanted(s, Y) || lg_count(p) == 0) return false;
    return lg_count(p) <= INT32_MAX && lg_count(&s->inputs[WEIGHTS]) <= INT32_MAX &&
           (size_t)(3 * 4 * units_of(s)) <= s->machine->local_bytes && s->machine->most_items >= ITEMS;
}

/* Packs kind, alpha and beta of the activations f, g and h of each direction. */
static size_t pack_activations(const lg_step *s, lg_plan *plan, int kind) {
    float table[2 * 3 * PER_ACTIVATION] = {0};
    const int per = kind == RNN ? 1 : kind == GRU ? 2 : 3, given = lg_items(s, "activations");
    int n_alpha = 0, n_beta = 0;
    const double *alpha = s->machine->host->step_floats(s->step, "alpha", &n_alpha);
    const double *beta = s->machine->host->step_floats(s->step, "beta", &n_beta);
    for (int d = 0; d < 2; ++d)
        for (int i = 0; i < 3; ++i) {
            float *f = table + (3 * d + i) * PER_ACTIVATION;
            const int at = d * per + i;
            f[0] = kind != RNN && i == 0 ? 0 : 1; /* sigmoid, else tanh */
            if (i >= per || at >= given) continue;
            f[0] = (float)lg_item(s, "activations", at, 0);
            if (at < n_alpha) f[1] = (float)alpha[at];
            if (at < n_beta) f[2] = (float)beta[at];
        }
    return lg_pack(plan, table, sizeof table);
}

void lg_build_recurrent(const lg_step *s, lg_plan *plan) {
    static const int bits[] = {0, 0, HAS_H, HAS_C, HAS_LENGTHS, HAS_PEEPHOLES, HAS_BIAS};
    const linnet_device_tensor *p = &s->inputs[P], *weights = &s->inputs[WEIGHTS];
    const int kind = (int)lg_integer(s, "kind", RNN);
    int flags =
        (lg_integer(s, "linear_before_reset", 0) ? LINEAR : 0) | (lg_integer(s, "input_forget", 0) ? JOINED : 0);
    lg_launch *launch = lg_add(plan, "lg_recurrent");
    if (launch == NULL) return;
    lg_define_operand(launch, "X", p->dtype);
    lg_put(&launch->source, "#define LENGTH_T %s\n",
           lg_absent(s, LENGTHS) ? "ln_i32" : lg_type_of(s->inputs[LENGTHS].dtype));
    lg_define(launch, "KIND", kind);
    lg_define(launch, "KEEPS_GATES", lg_wanted(s, GATES));
    lg_define(launch, "KEEPS_CELLS", lg_wanted(s, CELLS));
    lg_define(launch, "UNITS", units_of(s));
    lg_define(launch, "ITEMS", ITEMS);
    for (int i = 0; i < ALL_INPUTS; ++i) {
        if (!lg_absent(s, i)) flags |= bits[i];
        lg_pass(launch, LG_INPUT, lg_absent(s, i) ? WEIGHTS : i); /* the kernel does not read absent operands */
    }
    if (lg_wanted(s, Y_H)) flags |= WANTS_H;
    if (lg_wanted(s, Y_C)) flags |= WANTS_C;
    lg_pass(launch, LG_OUTPUT, Y);
    lg_pass(launch, LG_OUTPUT, lg_wanted(s, Y_H) ? Y_H : Y);
    lg_pass(launch, LG_OUTPUT, lg_wanted(s, Y_C) ? Y_C : Y);
    lg_pass(launch, LG_OUTPUT, lg_wanted(s, GATES) ? GATES : Y);
    lg_pass(launch, LG_OUTPUT, lg_wanted(s, CELLS) ? CELLS : Y);
    const size_t table = pack_activations(s, plan, kind);
    lg_check_indices(plan, p->shape[0] + 1);
    lg_pass(launch, LG_PACKED, 0);
    const int64_t numbers[] = {(int64_t)table,
                               (int64_t)plan->status,
                               p->shape[0],
                               p->shape[1],
                               weights->shape[0],
                               weights->shape[2],
                               lg_integer(s, "direction", 0) == 1,
                               flags};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_pass_real(launch, lg_real(s, "clip", 0));
    lg_put_file(launch, "recurrent");
    lg_local(launch, ITEMS, 1, 1);
    lg_range(launch, ITEMS * weights->shape[0] * p->shape[1], 1, 1);
    plan->failed |= launch->source.failed;
}
