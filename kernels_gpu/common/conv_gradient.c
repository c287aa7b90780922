/* conv_gradient.c - launches the kernels of conv_gradient.inc, which compute gradients of convolutions with respect to
 * their weights. The gradient with respect to the input is a conv_transpose. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/window.h"

#include <string.h>

enum { ITEMS, TILES, GROUPS }; /* values of METHOD in conv_gradient.inc */
enum { TILE = 64, TILE_ITEMS = 256, GROUP = 64, FEW_ITEMS = 2048, MANY_ITEMS = 1 << 16, MOST_PARTS = 256 };
enum { MOST_BYTES = 64 << 20 }; /* limit on the bytes of partial sums */

typedef struct sizes {
    lg_window w;
    int64_t groups, channels, outputs, taps; /* channels and outputs of a group */
    int64_t count;                           /* number of weights */
} sizes;

static bool open(const lg_step *s, sizes *z) {
    const linnet_device_tensor *x = &s->inputs[0], *w = &s->result;
    if (s->n_inputs != 2 || x->rank < 3 || w->rank != x->rank) return false;
    if (!lg_window_open(&z->w, s, x, &s->inputs[1], w->shape + 2, false)) return false;
    z->groups = lg_integer(s, "group", 1), z->channels = w->shape[1], z->count = lg_count(w);
    if (z->groups < 1 || z->count == 0 || z->count > INT32_MAX || z->w.batch == 0) return false;
    z->outputs = w->shape[0] / z->groups, z->taps = lg_shape_product(w, 2, w->rank);
    return lg_count(x) > 0 && lg_count(&s->inputs[1]) > 0;
}

bool lg_can_conv_gradient(const lg_step *s) {
    sizes z;
    const int dtype = s->inputs[0].dtype;
    return lg_is_float(dtype) && s->inputs[1].dtype == dtype && s->result.dtype == dtype && lg_can_store(s) &&
           open(s, &z);
}

/* This kernel is for large products. A processor uses it only if the option `kernel` names it. */
bool lg_can_conv_gradient_local(const lg_step *s) {
    sizes z;
    const lg_machine *m = s->machine;
    if (!lg_can_conv_gradient(s) || !open(s, &z) || m->most_items < TILE_ITEMS) return false;
    if (strcmp(m->prefer, "conv_gradient_local") == 0) return true;
    return !m->is_cpu && z.outputs >= TILE / 2 && z.channels * z.taps >= TILE / 2;
}

/* This kernel is for groups with few channels and outputs. With more, it would read an element again for each pair of a
 * channel and an output, and not only where windows overlap. */
bool lg_can_conv_gradient_group(const lg_step *s) {
    sizes z;
    if (!lg_can_conv_gradient(s) || !open(s, &z)) return false;
    if (strcmp(s->machine->prefer, "conv_gradient_group") == 0) return true;
    return !s->machine->is_cpu && !z.w.last && z.channels * z.outputs <= 8;
}

/* Returns the number of parts of a sum of `length` terms, so that there are enough work items for the machine. */
static int64_t parts_of(const lg_step *s, const sizes *z, int64_t items, int64_t length, int64_t least) {
    const int64_t wanted = s->machine->is_cpu ? FEW_ITEMS : MANY_ITEMS, room = MOST_BYTES / 4 / z->count;
    int64_t parts = (wanted + items - 1) / items;
    if (parts > (length + least - 1) / least) parts = (length + least - 1) / least;
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    if (parts > room) parts = room;
    if (parts > INT32_MAX / z->count) parts = INT32_MAX / z->count;
    return parts < 1 ? 1 : parts;
}

static void build(const lg_step *s, lg_plan *plan, int method) {
    sizes z;
    lg_launch *launch = lg_add(plan, "lg_conv_gradient");
    if (launch == NULL || !open(s, &z)) {
        plan->failed = true;
        return;
    }
    const int rows = z.outputs >= 8 ? 8 : z.outputs >= 4 ? 4 : z.outputs >= 2 ? 2 : 1;
    const int taps = z.taps >= 9 ? 9 : z.taps >= 3 ? 3 : 1;
    const int64_t columns = z.channels * z.taps, lines = z.w.batch * z.w.out[0] * z.w.out[1];
    const int64_t blocks = (z.outputs + rows - 1) / rows, tap_blocks = (z.taps + taps - 1) / taps;
    const int64_t across = (columns + TILE - 1) / TILE, down = (z.outputs + TILE - 1) / TILE;
    const int64_t pairs = z.groups * z.outputs * z.channels * tap_blocks;
    const int64_t items = method == ITEMS   ? z.groups * columns * blocks
                          : method == TILES ? z.groups * across * down * TILE_ITEMS
                                            : pairs * GROUP;
    const int64_t length = method == ITEMS ? lines : lines * z.w.out[2], least = method == ITEMS ? 4 : 4 * GROUP;
    int64_t parts = parts_of(s, &z, items, length, least), per_part = (length + parts - 1) / parts;
    if (method == TILES) per_part = (per_part + 15) / 16 * 16;
    parts = (length + per_part - 1) / per_part;
    const bool single = parts == 1;
    lg_define(launch, "METHOD", method);
    lg_define(launch, "LAST", z.w.last);
    lg_define(launch, "ROWS", rows);
    lg_define(launch, "TAPS", taps);
    lg_define(launch, "GROUP", GROUP);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_define_operand(launch, "P", single ? s->result.dtype : LINNET_F32);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, single ? LG_OUTPUT : LG_SCRATCH, 0);
    const int64_t numbers[] = {z.w.batch, z.channels, z.outputs, z.groups, parts, per_part};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_pass_space(launch, z.w.in);
    lg_pass_space(launch, z.w.out);
    lg_pass_space(launch, z.w.kernel);
    lg_pass_space(launch, z.w.stride);
    lg_pass_space(launch, z.w.dilation);
    lg_pass_space(launch, z.w.pad);
    lg_pass_integer(launch, z.w.x_c);
    lg_pass_integer(launch, z.w.x_x);
    lg_pass_integer(launch, z.w.y_c);
    lg_pass_integer(launch, z.w.y_x);
    if (method == GROUPS) lg_put_file(launch, "lines");
    lg_put_file(launch, "conv_gradient");
    if (method == ITEMS) {
        lg_range(launch, z.groups * columns, blocks, parts);
        if (s->machine->is_cpu) lg_local(launch, 16, 1, 1);
    } else if (method == TILES) {
        lg_range(launch, across * TILE_ITEMS, down, z.groups * parts), lg_local(launch, TILE_ITEMS, 1, 1);
    } else {
        lg_range(launch, pairs * GROUP, parts, 1), lg_local(launch, GROUP, 1, 1);
    }
    plan->failed |= launch->source.failed;
    if (!single) lg_add_sum_parts(s, plan, parts, z.count);
}

void lg_build_conv_gradient(const lg_step *s, lg_plan *plan) { build(s, plan, ITEMS); }
void lg_build_conv_gradient_local(const lg_step *s, lg_plan *plan) { build(s, plan, TILES); }
void lg_build_conv_gradient_group(const lg_step *s, lg_plan *plan) { build(s, plan, GROUPS); }
