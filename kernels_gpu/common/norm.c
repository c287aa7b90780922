/* norm.c - layer_norm, group_norm and batch_norm: the kernels of norm.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/lines.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/text.h"

enum { SCALED = 1, BIASED = 2, CENTRED = 4, MEANS = 8, DEVIATIONS = 16 }; /* as in norm.inc */

/* The sizes of the call. Each line is normalized by itself. */
typedef struct sizes {
    int64_t lines, length;
    int64_t channels, groups, size, positions; /* of group_norm: each group has `size` channels */
    bool last;                                 /* of group_norm: channels are the last axis */
} sizes;

static bool is_layer(const lg_step *s) { return s->op[0] == 'l'; }

/* Returns the number of elements of a scale or bias, which repeat along a line of layer_norm; 0 if the operand is
 * broadcast in another way. */
static int64_t period_of(const linnet_device_tensor *t, const linnet_device_tensor *x) {
    const int64_t count = lg_count(t);
    int64_t tail = 1;
    for (int d = x->rank - 1; d >= 0 && tail < count; --d) tail *= x->shape[d];
    if (tail != count) return 0;
    tail = 1;
    for (int d = t->rank - 1; d >= 0 && tail < count; --d) {
        if (t->shape[d] != x->shape[x->rank - t->rank + d]) return 0;
        tail *= t->shape[d];
    }
    return count;
}

static bool open(const lg_step *s, sizes *z) {
    const linnet_device_tensor *x = &s->inputs[0];
    if (x->rank < 1 || !lg_lines_fit(s)) return false;
    *z = (sizes){.groups = 1};
    if (is_layer(s)) {
        const int axis = lg_axis(lg_integer(s, "axis", -1), x->rank);
        if (axis < 0 || axis >= x->rank) return false;
        z->lines = lg_shape_product(x, 0, axis), z->length = lg_shape_product(x, axis, x->rank);
        for (int i = 1; i < 3; ++i)
            if (!lg_absent(s, i) && period_of(&s->inputs[i], x) == 0) return false;
        return true;
    }
    const int axis = lg_axis(lg_integer(s, "channel_axis", 1), x->rank);
    if (axis < 1 || (axis != 1 && axis != x->rank - 1)) return false;
    const int64_t groups = lg_integer(s, "groups", 0);
    z->last = axis != 1;
    z->channels = x->shape[axis], z->groups = groups == 0 ? z->channels : groups;
    z->size = z->channels / z->groups, z->positions = lg_count(x) / (x->shape[0] * z->channels);
    z->lines = x->shape[0] * z->groups, z->length = z->size * z->positions;
    return true;
}

static bool are_floats(const lg_step *s) {
    for (int i = 0; i < s->n_inputs; ++i)
        if (!lg_absent(s, i) && !lg_is_float(s->inputs[i].dtype)) return false;
    return s->n_inputs > 0 && lg_can_store(s) && s->result.dtype == s->inputs[0].dtype;
}

bool lg_can_norm(const lg_step *s) {
    sizes z;
    return are_floats(s) && open(s, &z);
}

bool lg_can_norm_group(const lg_step *s) {
    sizes z;
    return lg_can_norm(s) && open(s, &z) && lg_lines_in_groups(s, "norm_group", z.lines, z.length);
}

/* Defines BASE(i), the place of the first element of line i; PLACE(k), the distance of element k from it; and SCALE_AT
   and BIAS_AT, the index of the parameter for an element. */
static void put_places(lg_launch *launch, const lg_step *s, const sizes *z) {
    lg_text *text = &launch->source;
    if (is_layer(s)) {
        lg_put_text(text, "#define BASE(i) ((i) * length)\n#define PLACE(k) (k)\n");
        for (int i = 1; i < 3; ++i) {
            const int64_t period = lg_absent(s, i) ? 1 : period_of(&s->inputs[i], &s->inputs[0]);
            /* Otherwise, scale_count (or bias_count) is the step from one parameter to the next, 0 or 1. */
            const bool repeated = period != 1 && period != z->length;
            lg_put(text, "#define %s(k) ((k) %s %s)\n", i == 1 ? "SCALE_AT" : "BIAS_AT", repeated ? "%" : "*",
                   i == 1 ? "scale_count" : "bias_count");
        }
        return;
    }
    lg_put_text(text, z->last ? "#define BASE(i) ((i) / groups * positions * channels + (i) % groups * size)\n"
                                "#define PLACE(k) ((k) / size * channels + (k) % size)\n"
                                "#define SCALE_AT(k) (line % groups * size + (k) % size)\n"
                              : "#define BASE(i) ((i) * length)\n#define PLACE(k) (k)\n"
                                "#define SCALE_AT(k) (line % groups * size + (k) / positions)\n");
    lg_put_text(text, "#define BIAS_AT(k) SCALE_AT(k)\n");
}

static void pass_parameter(lg_launch *launch, const lg_step *s, int input, const char *name) {
    const int at = lg_absent(s, input) ? 0 : input;
    lg_define_operand(launch, name, s->inputs[at].dtype);
    lg_pass(launch, LG_INPUT, at);
}

static bool has_output(const lg_step *s, int i) { return i < s->n_outputs && s->outputs[i].dtype != LINNET_NONE; }

static void build(const lg_step *s, lg_plan *plan, bool grouped) {
    sizes z;
    lg_launch *launch = lg_add(plan, "lg_norm");
    if (launch == NULL || !open(s, &z)) {
        plan->failed = true;
        return;
    }
    const bool centred = !is_layer(s) || lg_integer(s, "rms", 0) == 0;
    const int uses = (lg_absent(s, 1) ? 0 : SCALED) | (lg_absent(s, 2) ? 0 : BIASED) | (centred ? CENTRED : 0) |
                     (has_output(s, 1) ? MEANS : 0) | (has_output(s, 2) ? DEVIATIONS : 0);
    put_places(launch, s, &z);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_INPUT, 0);
    pass_parameter(launch, s, 1, "S");
    pass_parameter(launch, s, 2, "B");
    lg_pass(launch, LG_OUTPUT, 0);
    for (int i = 1; i < 3; ++i) lg_pass(launch, LG_OUTPUT, has_output(s, i) ? i : 0);
    lg_pass_integer(launch, uses);
    const int64_t numbers[] = {z.lines, z.length, z.channels, z.groups, z.size, z.positions};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    for (int i = 1; i < 3; ++i) {
        const int64_t count = lg_absent(s, i) ? 1 : lg_count(&s->inputs[i]);
        lg_pass_integer(launch, count == 1 ? 0 : count == z.length ? 1 : count);
    }
    lg_pass_real(launch, lg_real(s, "epsilon", 1e-5));
    lg_range_lines(launch, s, z.lines, z.length, grouped);
    lg_put_file(launch, "lines");
    lg_put_file(launch, "norm");
}

void lg_build_norm(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
void lg_build_norm_group(const lg_step *s, lg_plan *plan) { build(s, plan, true); }

bool lg_can_batch_norm(const lg_step *s) { return are_floats(s) && s->n_inputs == 5 && lg_lines_fit(s); }

void lg_build_batch_norm(const lg_step *s, lg_plan *plan) {
    static const char *const names[] = {"X", "S", "B", "M", "V"};
    const linnet_device_tensor *x = &s->inputs[0];
    const int axis = lg_axis(lg_integer(s, "channel_axis", 1), x->rank);
    const bool has_axis = axis >= 0 && axis < x->rank; /* without the axis, x has one channel */
    lg_launch *launch = lg_add(plan, "lg_batch_norm");
    if (launch == NULL) return;
    for (int i = 0; i < 5; ++i) {
        lg_define_operand(launch, names[i], s->inputs[i].dtype);
        lg_pass(launch, LG_INPUT, i);
    }
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, lg_count(x));
    lg_pass_integer(launch, has_axis ? x->shape[axis] : 1);
    lg_pass_integer(launch, has_axis ? lg_shape_product(x, axis + 1, x->rank) : lg_count(x));
    lg_pass_real(launch, lg_real(s, "epsilon", 1e-5));
    lg_put_file(launch, "batch_norm");
    lg_range(launch, lg_count(x), 1, 1);
}
