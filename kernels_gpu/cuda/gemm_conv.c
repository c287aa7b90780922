/* gemm_conv.c - launches gemm.inc for convolutions, and for transposed convolutions of stride 1. A has a row for each
 * output pixel. If the channels of x are last, the sum runs over all channels of one tap before the next tap, in runs
 * of 16 bytes. Otherwise it runs in the order of the weights. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/window.h"
#include "kernels_gpu/cuda/gemm.h"
#include "kernels_gpu/cuda/gemm_tiles.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_CHANNELS = 8 }; /* least channels of a group; with fewer, the common kernels are as fast */

/* Tells whether the rows of A are the pixels of x as they are: the window is 1 x 1 without padding, the stride is 1,
 * and the channels are adjacent in memory. */
static bool is_plain(const lg_window *w) {
    for (int d = 0; d < LG_SPACE; ++d)
        if (w->kernel[d] != 1 || w->stride[d] != 1 || w->pad[d] != 0 || w->out[d] != w->in[d]) return false;
    return w->x_c == 1;
}

static bool is_constant(const lg_step *s) { return s->inputs[1].constant && s->inputs[1].data != NULL; }

/* Reads the window. A transposed convolution of stride 1, such as the gradient of an input, becomes a convolution with
 * mirrored taps. */
static bool open_window(const lg_step *s, bool turned, lg_window *w) {
    if (!lg_window_open(w, s, &s->inputs[0], &s->result, s->inputs[1].shape + 2, turned)) return false;
    for (int d = 0; d < LG_SPACE && turned; ++d) {
        if (w->stride[d] != 1) return false;
        w->pad[d] = (w->kernel[d] - 1) * w->dilation[d] - w->pad[d];
    }
    return true;
}

static bool open(const lg_step *s, bool adds, lg_gemm *g, lg_window *w) {
    const int kind = lg_gemm_kind(s, adds);
    const bool turned = strcmp(s->op, "conv_transpose") == 0;
    const linnet_device_tensor *weights = &s->inputs[1];
    if (kind < 0 || !lg_can_multiply(s) || weights->rank < 3) return false;
    if ((turned && !lg_is_float(s->inputs[0].dtype)) || !open_window(s, turned, w)) return false;
    const int64_t groups = lg_integer(s, "group", 1), channels = w->channels / groups;
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], size = lg_bytes_of(s->inputs[0].dtype);
    *g = (lg_gemm){.m = w->batch * w->out[0] * w->out[1] * w->out[2], .n = w->out_channels / groups, .z = groups};
    g->depth = channels * taps, g->kind = kind, g->size = (int)size, g->window = w, g->groups = groups;
    g->a_m = w->x_x, g->a_k = 1, g->a_z = channels * w->x_c;
    g->b_n = g->depth, g->b_k = 1, g->b_z = g->n * g->depth, g->packed_b = g->table = g->terms = -1;
    g->gathers = !is_plain(w) || channels * size % 16 != 0 || w->channels * size % 16 != 0;
    g->dense = !g->gathers && groups == 1 && !turned;
    const int other = size == 4 ? LG_LOAD_WORDS : LG_LOAD_GATHER;
    const bool runs = w->x_c == 1 && channels * size % 16 == 0 && w->channels * size % 16 == 0;
    g->a_load = runs && (taps == 1 || is_constant(s) || turned) ? LG_LOAD_CHUNKS : other;
    g->b_load = is_constant(s) || g->depth * size % 16 == 0 ? LG_LOAD_CHUNKS : other;
    g->packs = is_constant(s) &&
               (g->depth * size % 16 != 0 || kind == LG_KIND_TF32 || (taps > 1 && g->a_load == LG_LOAD_CHUNKS));
    if (turned) { /* weights are [channels, n of a group, taps] */
        g->turns = g->mirrors = true, g->packs = false, g->by_taps = g->a_load == LG_LOAD_CHUNKS;
        g->w_n = taps, g->w_c = g->n * taps, g->w_z = channels * g->n * taps;
        g->b_n = (g->depth * size + 15) / 16 * 16 / size, g->b_z = g->n * g->b_n, g->b_load = LG_LOAD_CHUNKS;
        if (g->b_z > INT32_MAX / 8 / groups) return false;
    }
    if (g->m < 1 || g->n < 1 || g->depth < 1 || (groups > 1 && (channels < LEAST_CHANNELS || g->n < LEAST_CHANNELS)))
        return false;
    for (int d = 0; d < LG_SPACE; ++d)
        if ((w->kernel[d] - 1) * w->dilation[d] >= 1024 || w->in[d] >= 1 << 19 || w->pad[d] <= -(1 << 19)) return false;
    return lg_is_float(s->inputs[0].dtype) || lg_gemm_can_zeros(s);
}

static bool can(const lg_step *s, bool adds) {
    lg_gemm g;
    lg_window w;
    return open(s, adds, &g, &w) && lg_gemm_choose(&g, s->machine);
}

/* Packs a table with one lg_entry (gemm_parts.inc) for each element, or each 16-byte chunk, along the sum: where in the
 * input it is, relative to the first tap. The length is rounded up to a whole panel of the tile whose panels are
 * longest. The entries after the end of the sum have the place -1. */
static void pack_table(lg_gemm *g, lg_plan *plan) {
    enum { DEEPEST = 128 };
    const lg_window *w = g->window;
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], channels = g->depth / taps;
    const int64_t lanes = g->a_load == LG_LOAD_CHUNKS ? 16 / g->size : 1, panel = DEEPEST / g->size;
    const int64_t n = (g->depth + panel - 1) / panel * panel / lanes;
    int32_t *entries = calloc((size_t)(2 * n), sizeof *entries);
    if (entries == NULL) {
        plan->failed = true;
        return;
    }
    for (int64_t i = 0; i < n; ++i) {
        const int64_t k = i * lanes;
        const int64_t tap = g->a_load == LG_LOAD_CHUNKS ? k / channels : k % taps;
        const int64_t c = g->a_load == LG_LOAD_CHUNKS ? k % channels : k / taps;
        const int64_t z = tap / (w->kernel[1] * w->kernel[2]) * w->dilation[0];
        const int64_t y = tap / w->kernel[2] % w->kernel[1] * w->dilation[1], x = tap % w->kernel[2] * w->dilation[2];
        entries[2 * i] = k < g->depth ? (int32_t)(((z * w->in[1] + y) * w->in[2] + x) * w->x_x + c * w->x_c) : -1;
        entries[2 * i + 1] = (int32_t)(z << 22 | y << 11 | x);
    }
    g->table = (int64_t)lg_pack(plan, entries, (size_t)(2 * n) * sizeof *entries);
    free(entries);
}

/* Packs the weights in the order in which A is read: if A is read in chunks, the channels of a tap follow each
 * other. */
static void pack_weights(lg_gemm *g, lg_plan *plan, const lg_step *s) {
    const lg_window *w = g->window;
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], channels = g->depth / taps;
    int64_t *places = calloc((size_t)g->depth, sizeof *places);
    if (places == NULL) {
        plan->failed = true;
        return;
    }
    for (int64_t k = 0; k < g->depth; ++k)
        places[k] = g->a_load == LG_LOAD_CHUNKS ? k % channels * taps + k / channels : k;
    lg_gemm_pack(g, plan, s, places);
    free(places);
}

static void put(const lg_gemm *g, lg_launch *launch, const lg_step *s) {
    const lg_window *w = g->window;
    const int64_t pixels = w->out[0] * w->out[1] * w->out[2];
    lg_text *text = &launch->source;
    (void)s;
    if (g->groups > 1) {
        lg_put(text, "#define A_OFFSET(z) ((z)*lg_n%d)\n", lg_number(launch, g->a_z));
        lg_put(text, "#define B_OFFSET(z) ((z)*lg_n%d)\n", lg_number(launch, g->b_z));
        lg_put(text, "#define CHANNEL(z) ((z)*n)\n");
    } else {
        lg_put(text, "#define A_OFFSET(z) 0\n#define B_OFFSET(z) 0\n#define CHANNEL(z) 0\n");
    }
    if (w->y_c == 1)
        lg_put(text, "#define PLACE(z,row) ((row)*lg_n%d)\n#define Y_STEP 1\n", lg_number(launch, w->y_x));
    else
        lg_put(text, "#define PLACE(z,row) ((row)/pixels*lg_n%d+(row)%%pixels)\n#define Y_STEP pixels\n",
               lg_number(launch, w->out_channels * pixels));
    lg_put(text, "#define BIAS_AT(i) (i)\n");
}

static void build(const lg_step *s, lg_plan *plan, bool adds) {
    lg_gemm g;
    lg_window w;
    if (!open(s, adds, &g, &w)) {
        plan->failed = true;
        return;
    }
    if (!lg_is_float(s->inputs[0].dtype)) lg_gemm_zeros(&g, plan, s);
    if (g.packs) pack_weights(&g, plan, s);
    if (g.gathers) pack_table(&g, plan);
    bool padded = false;
    for (int d = 0; d < LG_SPACE; ++d)
        padded |= w.pad[d] > 0 || (w.out[d] - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] >= w.in[d];
    g.fill &= padded;
    plan->failed |= !lg_gemm_choose(&g, s->machine);
    if (!plan->failed) lg_gemm_launch(&g, plan, s, put);
}

bool lg_can_conv_tensor(const lg_step *s) { return can(s, false); }
void lg_build_conv_tensor(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
bool lg_can_conv_tiles(const lg_step *s) { return can(s, true); }
void lg_build_conv_tiles(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
bool lg_can_conv_transpose_tensor(const lg_step *s) { return can(s, false); }
void lg_build_conv_transpose_tensor(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
bool lg_can_conv_transpose_tiles(const lg_step *s) { return can(s, true); }
void lg_build_conv_transpose_tiles(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
