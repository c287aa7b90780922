/* recurrent_gradient.c - backpropagation through time: the kernel of recurrent_gradient.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

enum { RNN, GRU, LSTM };
enum { WEIGHTS, GATES, Y, CELLS, STATE_H, STATE_C, LENGTHS, DY, DY_H, DY_C, ALL_INPUTS };
enum { DP, DH, DC, DQ, ALL_OUTPUTS };
enum { ITEMS = 64, MANY_ITEMS = 256, RELU = 512 };

static int64_t units_of(const lg_step *s) {
    int64_t units = 64;
    while (units < s->inputs[WEIGHTS].shape[2]) units *= 2;
    return units;
}

static int gates_of(int64_t kind) { return kind == RNN ? 1 : kind == GRU ? 3 : 4; }

bool lg_can_recurrent_gradient(const lg_step *s) {
    const int64_t kind = lg_integer(s, "kind", RNN);
    const int dtype = s->inputs[WEIGHTS].dtype;
    if (s->n_inputs < 2 || !lg_is_float(dtype) || !lg_can_store(s) || !lg_wanted(s, DP)) return false;
    for (int i = 0; i < s->n_inputs; ++i) {
        if (lg_absent(s, i)) continue;
        if (lg_count(&s->inputs[i]) == 0 || lg_count(&s->inputs[i]) > INT32_MAX) return false;
        if (i != LENGTHS && s->inputs[i].dtype != dtype) return false;
    }
    if ((kind != RNN && lg_absent(s, CELLS)) || (kind == GRU && lg_absent(s, Y))) return false;
    return (size_t)((2 + gates_of(kind)) * 4 * units_of(s)) <= s->machine->local_bytes &&
           s->machine->most_items >= ITEMS;
}

void lg_build_recurrent_gradient(const lg_step *s, lg_plan *plan) {
    static const int in_bits[] = {0, 0, 0, 0, 1, 2, 4, 8, 16, 32}, out_bits[] = {0, 64, 128, 256};
    const linnet_device_tensor *weights = &s->inputs[WEIGHTS], *gates = &s->inputs[GATES];
    const lg_machine *m = s->machine;
    const int64_t items = !m->is_cpu && m->most_items >= MANY_ITEMS && weights->shape[2] > ITEMS ? MANY_ITEMS : ITEMS;
    int flags = lg_integer(s, "relu", 0) ? RELU : 0;
    lg_launch *launch = lg_add(plan, "lg_recurrent_gradient");
    if (launch == NULL) return;
    lg_define_operand(launch, "X", weights->dtype);
    lg_put(&launch->source, "#define LENGTH_T %s\n",
           lg_absent(s, LENGTHS) ? "ln_i32" : lg_type_of(s->inputs[LENGTHS].dtype));
    lg_define(launch, "KIND", lg_integer(s, "kind", RNN));
    lg_define(launch, "UNITS", units_of(s));
    lg_define(launch, "ITEMS", items);
    for (int i = 0; i < ALL_INPUTS; ++i) {
        if (!lg_absent(s, i)) flags |= in_bits[i];
        lg_pass(launch, LG_INPUT, lg_absent(s, i) ? WEIGHTS : i); /* the kernel does not read absent operands */
    }
    for (int i = 0; i < ALL_OUTPUTS; ++i) {
        if (lg_wanted(s, i)) flags |= out_bits[i];
        lg_pass(launch, LG_OUTPUT, lg_wanted(s, i) ? i : DP);
    }
    lg_check_indices(plan, gates->shape[0] + 1);
    lg_pass(launch, LG_PACKED, 0);
    const int64_t numbers[] = {(int64_t)plan->status,
                               gates->shape[0],
                               gates->shape[1],
                               weights->shape[0],
                               weights->shape[2],
                               lg_integer(s, "direction", 0) == 1,
                               flags};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_put_file(launch, "recurrent_gradient");
    lg_local(launch, (size_t)items, 1, 1);
    lg_range(launch, items * weights->shape[0] * gates->shape[1], 1, 1);
    plan->failed |= launch->source.failed;
}
