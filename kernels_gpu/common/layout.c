/* layout.c - chooses which images have their channels last in memory between steps of the device
 * (kernels_gpu/common/gpu.h). The channels of a pixel are then adjacent, and products read them in long runs. */
#include "kernels_gpu/common/layout.h"
#include "kernels_gpu/common/step.h"

#include <string.h>

enum { IMAGE_RANK = 4, CONCAT = 3 /* the number of a kind of copy, see docs/ops.md */ };

int lg_order(const linnet_device_tensor *t, int k) {
    if (!lg_is_last(t) || k == 0) return k;
    return k == t->rank - 1 ? 1 : k + 1;
}

bool lg_describe_layout(uint32_t layout, int rank, linnet_layout *out) {
    const linnet_device_tensor t = {.layout = layout, .rank = rank};
    if (layout != LG_CHANNELS_LAST || rank != IMAGE_RANK) return false;
    for (int k = 0; k < rank; ++k) out->order[k] = lg_order(&t, k);
    return true;
}

static bool is_op(const lg_step *s, const char *op) { return strcmp(s->op, op) == 0; }

/* Tells whether the step's kernels read operand `input`, or write the output if it is -1, in either layout, whatever
 * the layouts of the other operands are. */
static bool takes(const lg_step *s, int input) {
    const linnet_device_tensor *y = &s->outputs[0];
    const bool extra = s->has_epilogue && input >= s->n_inputs;
    if (s->n_outputs != 1) return false;
    if (s->has_map && !s->has_epilogue) return input < 0 || lg_same_shape(&s->inputs[input], y);
    if (extra) return is_op(s, "conv") && lg_same_shape(&s->inputs[input], y);
    if (is_op(s, "conv") || is_op(s, "pool")) return input <= 0 && lg_integer(s, "channel_axis", 1) == 1;
    if (is_op(s, "reduce")) return input == 0;
    return is_op(s, "copy") && lg_integer(s, "kind", 0) == CONCAT;
}

/* Tells whether the layout pays: the channels of a pixel are whole runs of 16 bytes, and the image has more than one
 * pixel. */
static bool is_worth_it(const linnet_device_tensor *t) {
    if (t->rank != IMAGE_RANK || t->shape[2] * t->shape[3] == 1) return false;
    const int64_t bytes = t->shape[1] * lg_bytes_of(t->dtype);
    return bytes > 0 && bytes % 16 == 0;
}

uint32_t lg_propose_layout(const lg_step *s, int output) {
    return output == 0 && is_worth_it(&s->outputs[0]) && takes(s, -1) ? LG_CHANNELS_LAST : 0;
}

bool lg_accepts_layout(const lg_step *s, int input, uint32_t layout) {
    return layout == LG_CHANNELS_LAST && s->inputs[input].rank == IMAGE_RANK && takes(s, input);
}
