/* gemm_gradient.c - launches the kernel of gemm_gradient.inc, which computes gradients of convolutions with respect to
 * their weights as products. There are few weights and each is a long sum, so the sum is cut into parts. A second
 * launch adds the parts in order. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/window.h"
#include "kernels_gpu/cuda/gemm.h"

#include <string.h>

enum { LEAST = 16 };            /* least rows and columns; with fewer, the common kernels are as fast */
enum { MOST_PARTS = 512 };      /* largest number of parts of a sum */
enum { MOST_BYTES = 64 << 20 }; /* limit on the bytes of all parts */

/* If several tiles cost the same, the first one is taken. */
static const lg_tile tiles[] = {
    {128, 128, 128, 2, 4, 3, LG_BY_WARPS, 2}, {64, 128, 128, 2, 4, 3, LG_BY_WARPS, 2},
    {128, 64, 128, 4, 2, 3, LG_BY_WARPS, 2},  {64, 64, 128, 2, 2, 3, LG_BY_WARPS, 3},
    {32, 64, 128, 2, 2, 3, LG_BY_WARPS, 4},   {64, 128, 128, 2, 4, 3, LG_BY_ADDING, 2},
    {64, 64, 128, 2, 2, 3, LG_BY_ADDING, 3},
};

typedef struct gradient {
    lg_window w;
    int64_t m, n, groups, channels; /* m, n and channels: of one group */
    int64_t positions, plane;       /* positions: output pixels of all images; plane: those of one image */
    int kind, size, a_load, b_load;
    bool last; /* the channels are last in memory */
    lg_tile tile;
    int64_t parts, per_part;
} gradient;

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static size_t shared_of(const lg_tile *t) { return (size_t)(t->stages * (t->tm + t->tn) * t->tk + t->tn * 16); }

static int64_t resident_of(const lg_machine *m, const lg_tile *t) {
    const int64_t blocks = (int64_t)((m->shared_bytes + 1024) / (shared_of(t) + 1024));
    return blocks < t->blocks ? (blocks > 0 ? blocks : 1) : t->blocks;
}

/* Chooses the tile and the number of parts by modelled time. The unit of time is one step of a 128 x 128 tile. */
static bool choose(gradient *z, const lg_machine *machine) {
    double best = -1;
    const int64_t count = z->m * z->n * z->groups, room = MOST_BYTES / 4 / count;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        lg_tile own = tiles[i];
        const lg_tile *t = &own;
        if ((z->kind == 0) != (t->math == LG_BY_ADDING) || shared_of(t) > machine->shared_bytes) continue;
        if (z->b_load == LG_LOAD_GATHER) { /* elements that go through registers take longer */
            if (t->tm * t->tn == 128 * 128) continue;
            if (t->blocks > 2) own.blocks--;
        }
        const int64_t deep = t->tk / z->size, all = up(z->positions, deep), resident = resident_of(machine, t);
        const int64_t blocks = up(z->m, t->tm) * up(z->n, t->tn) * z->groups;
        /* A small tile loads more for each product. */
        const double step = (0.5 * t->tm * t->tn / (128 * 128) + 0.25 * (t->tm + t->tn) / 128) * (double)resident;
        for (int64_t parts = 1; parts <= MOST_PARTS && parts <= all; ++parts) {
            if (parts > 1 && (parts > room || parts * count > INT32_MAX || parts * z->groups > 65535)) break;
            const int64_t steps = up(all, parts), slots = machine->units * resident;
            const double waves = (double)up(blocks * parts, slots);
            const double adding = parts > 1 ? 4 + (double)(parts * count) * 8 / (15000.0 * machine->units) : 0;
            const double cost = waves * (((double)steps + 8) * step) + adding;
            if (best >= 0 && cost >= best) continue;
            best = cost;
            z->tile = *t, z->per_part = steps * deep, z->parts = up(z->positions, z->per_part);
        }
    }
    return best >= 0;
}

static bool open(const lg_step *s, bool adds, gradient *z) {
    const linnet_device_tensor *x = &s->inputs[0], *g = &s->inputs[1], *w = &s->result;
    *z = (gradient){.kind = lg_gemm_kind(s, adds), .size = lg_bytes_of(x->dtype)};
    if (z->kind < 0 || !lg_is_float(x->dtype) || !lg_can_conv_gradient(s)) return false;
    if (!lg_window_open(&z->w, s, x, g, w->shape + 2, false) || lg_is_last(x) || lg_is_last(g)) return false;
    z->groups = lg_integer(s, "group", 1), z->m = w->shape[0] / z->groups, z->channels = w->shape[1];
    z->n = z->channels * lg_shape_product(w, 2, w->rank), z->plane = z->w.out[0] * z->w.out[1] * z->w.out[2];
    z->positions = z->w.batch * z->plane;
    z->last = z->w.x_last;
    z->b_load = z->size == 4 ? LG_LOAD_WORDS : LG_LOAD_GATHER;
    z->a_load = z->size == 4 || (!z->last && z->plane % 2 == 0) ? LG_LOAD_WORDS : LG_LOAD_GATHER;
    for (int d = 0; d < LG_SPACE; ++d)
        if (z->w.in[d] >= 1 << 19 || z->w.pad[d] >= 1 << 19 || (z->w.kernel[d] - 1) * z->w.dilation[d] >= 1 << 19 ||
            z->w.out[d] * z->w.stride[d] >= 1 << 19)
            return false;
    const bool asked = strncmp(s->machine->prefer, "conv_gradient_t", 15) == 0;
    if (!asked && (z->m < LEAST || z->n < LEAST)) return false;
    return z->positions > 0 && z->groups <= 65535 && choose(z, s->machine);
}

/* Passes a size, and the numbers by which gemm_gradient.inc divides by it. */
static void pass_divisor(lg_launch *launch, int64_t size) {
    int shift = 0;
    while ((int64_t)1 << shift < size) ++shift;
    const uint64_t factor = (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - (uint64_t)size)) / (uint64_t)size + 1;
    lg_pass_integer(launch, size);
    lg_pass_integer(launch, (int64_t)factor);
    lg_pass_integer(launch, shift);
}

static void build(const lg_step *s, lg_plan *plan, bool adds) {
    gradient z;
    lg_launch *launch = lg_add(plan, "lg_conv_gradient");
    if (launch == NULL || !open(s, adds, &z)) {
        plan->failed = true;
        return;
    }
    const lg_window *w = &z.w;
    const lg_tile *t = &z.tile;
    const bool single = z.parts == 1;
    const int threads = t->warps_m * t->warps_n * 32;
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"KIND", z.kind},        {"SIZE", z.size},
        {"TM", t->tm},           {"TN", t->tn},
        {"TK", t->tk},           {"WARPS_M", t->warps_m},
        {"WARPS_N", t->warps_n}, {"STAGES", t->stages},
        {"MATH", t->math},       {"BLOCKS", t->blocks},
        {"A_LOAD", z.a_load},    {"B_LOAD", z.b_load},
        {"LAST", z.last},        {"FLAT", w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->pad[0] == 0},
        {"CLUSTER", 0},          {"FLOATS", 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_define(launch, numbers[i].name, numbers[i].value);
    lg_define_operand(launch, "X", s->inputs[0].dtype);
    lg_define_operand(launch, "P", single ? s->result.dtype : LINNET_F32);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, single ? LG_OUTPUT : LG_SCRATCH, 0);
    const int64_t sizes[] = {z.m, z.n, z.channels, z.groups, z.positions, z.per_part};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) lg_pass_integer(launch, sizes[i]);
    lg_pass_space(launch, w->in);
    lg_pass_space(launch, w->kernel);
    lg_pass_space(launch, w->stride);
    lg_pass_space(launch, w->dilation);
    lg_pass_space(launch, w->pad);
    lg_pass_integer(launch, w->x_c);
    lg_pass_integer(launch, w->x_x);
    lg_pass_integer(launch, w->y_c);
    lg_pass_integer(launch, w->y_x);
    lg_pass_integer(launch, w->channels * w->in[0] * w->in[1] * w->in[2]);
    lg_pass_integer(launch, w->out_channels * z.plane);
    pass_divisor(launch, z.plane);
    pass_divisor(launch, w->out[1]);
    pass_divisor(launch, w->out[2]);
    lg_put_file(launch, "product");
    lg_put_file(launch, "mma");
    lg_put_file(launch, "gemm_parts");
    lg_put_file(launch, "gemm_gradient");
    lg_range(launch, up(z.m, t->tm) * up(z.n, t->tn) * threads, 1, z.groups * z.parts);
    lg_local(launch, (size_t)threads, 1, 1);
    launch->shared_bytes = shared_of(t);
    plan->failed |= launch->source.failed;
    if (!single) lg_add_sum_parts(s, plan, z.parts, z.m * z.n * z.groups);
}

bool lg_can_conv_gradient_tensor(const lg_step *s) {
    gradient z;
    return open(s, false, &z);
}
bool lg_can_conv_gradient_tiles(const lg_step *s) {
    gradient z;
    return open(s, true, &z);
}
void lg_build_conv_gradient_tensor(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
void lg_build_conv_gradient_tiles(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
