/* gemm.c - the launches of gemm.inc: definitions, arguments, packed weights, and zero points (kernels_gpu/cuda/gemm.h).
 */
#include "kernels_gpu/cuda/gemm.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/window.h"
#include "kernels_gpu/cuda/gemm_tiles.h"

#include <stdlib.h>
#include <string.h>

/* Tells whether f32 factors may be rounded to tf32. Every precision except f32 permits this, because tf32 is more exact
 * than bf16 factors or f16 sums. */
static bool permits_tf32(const lg_step *s) { return s->machine->host->step_precision(s->step) != LINNET_PRECISION_F32; }

int lg_gemm_kind(const lg_step *s, bool adds) {
    const int x = s->inputs[0].dtype, w = s->inputs[1].dtype, compute = s->machine->compute;
    if (adds) return x == LINNET_F32 && w == LINNET_F32 && compute >= 75 ? 0 : -1;
    if (compute < 75) return -1;
    if (x == LINNET_F16 && w == LINNET_F16) return LG_KIND_F16;
    if (x == LINNET_BF16 && w == LINNET_BF16) return compute >= 80 ? LG_KIND_BF16 : -1;
    if (x == LINNET_F32 && w == LINNET_F32) return compute >= 80 && permits_tf32(s) ? LG_KIND_TF32 : -1;
    if ((x != LINNET_I8 && x != LINNET_U8) || (w != LINNET_I8 && w != LINNET_U8)) return -1;
    return x == LINNET_I8 ? (w == LINNET_I8 ? LG_KIND_S8S8 : LG_KIND_S8U8)
                          : (w == LINNET_I8 ? LG_KIND_U8S8 : LG_KIND_U8U8);
}

/* ---- packed weights ---------------------------------------------------------------------------------------------- */

/* Rounds floats to the nearest tf32, because the matrix instructions of warp groups drop the low bits. */
static void round_to_tf32(unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        uint32_t bits;
        memcpy(&bits, bytes + 4 * i, 4);
        if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
        memcpy(bytes + 4 * i, &bits, 4);
    }
}

void lg_gemm_pack(lg_gemm *g, lg_plan *plan, const lg_step *s, const int64_t *places) {
    const unsigned char *from = s->inputs[1].data;
    const int64_t lanes = 16 / g->size, padded = (g->depth + lanes - 1) / lanes * lanes, rows = g->n * g->groups;
    const size_t size = (size_t)(rows * padded * g->size);
    unsigned char *bytes = calloc(size > 0 ? size : 1, 1);
    if (bytes == NULL) {
        plan->failed = true;
        return;
    }
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t first = row / g->n * g->b_z + row % g->n * g->b_n;
        unsigned char *to = bytes + row * padded * g->size;
        for (int64_t k = 0; k < g->depth; ++k)
            memcpy(to + k * g->size, from + (first + (places != NULL ? places[k] : k * g->b_k)) * g->size,
                   (size_t)g->size);
    }
    if (g->kind == LG_KIND_TF32) round_to_tf32(bytes, size / 4);
    g->packed_b = (int64_t)lg_pack(plan, bytes, size);
    free(bytes);
    g->b_n = padded, g->b_k = 1, g->b_z = g->n * padded, g->b_load = LG_LOAD_CHUNKS;
}

/* ---- zero points ------------------------------------------------------------------------------------------------- */

/* Returns the zero points of the columns; NULL: there is no memory. The caller frees them. */
static int32_t *zeros_of(const lg_step *s, int32_t *x_zero, int64_t *count) {
    linnet_requant r;
    linnet_requant_init(&r);
    if (s->machine->host->step_get_requant(s->step, &r) != LINNET_OK || r.channels < 1) return NULL;
    const size_t n = (size_t)r.channels;
    int32_t *zeros = calloc(3 * n, sizeof *zeros);
    float *scales = calloc(n, sizeof *scales);
    if (zeros != NULL && scales != NULL) {
        r.capacity = r.channels;
        r.w_zero = zeros, r.fixed = zeros + n, r.shift = zeros + 2 * n, r.scale = scales;
        if (s->machine->host->step_get_requant(s->step, &r) != LINNET_OK) {
            free(zeros);
            zeros = NULL;
        }
    }
    free(scales);
    *x_zero = r.x_zero, *count = (int64_t)n;
    return zeros;
}

bool lg_gemm_can_zeros(const lg_step *s) {
    int32_t x_zero = 0;
    int64_t count = 0;
    int32_t *zeros = zeros_of(s, &x_zero, &count);
    free(zeros);
    return zeros != NULL && (x_zero == 0 || (s->inputs[1].constant && s->inputs[1].data != NULL));
}

void lg_gemm_zeros(lg_gemm *g, lg_plan *plan, const lg_step *s) {
    int32_t x_zero = 0;
    int64_t count = 0;
    int32_t *zeros = zeros_of(s, &x_zero, &count);
    const int64_t columns = g->n * g->groups;
    int32_t *terms = calloc((size_t)columns, sizeof *terms);
    const unsigned char *w = s->inputs[1].data;
    if (zeros == NULL || terms == NULL) plan->failed = true;
    for (int64_t c = 0; c < columns && !plan->failed; ++c) {
        const int32_t zero = zeros[count == 1 ? 0 : c < count ? c : count - 1];
        uint32_t sum = 0; /* sum of w - zero, which wraps */
        g->row_sums |= zero != 0;
        if (x_zero == 0) continue;
        const int64_t first = c / g->n * g->b_z + c % g->n * g->b_n;
        for (int64_t k = 0; k < g->depth; ++k) {
            const unsigned char byte = w[first + k * g->b_k];
            sum += (uint32_t)(s->inputs[1].dtype == LINNET_I8 ? (int32_t)(signed char)byte : (int32_t)byte) -
                   (uint32_t)zero;
        }
        terms[c] = (int32_t)(0u - (uint32_t)x_zero * sum);
    }
    if (!plan->failed && x_zero != 0) g->terms = (int64_t)lg_pack(plan, terms, (size_t)columns * sizeof *terms);
    g->fill = x_zero != 0;
    free(terms);
    free(zeros);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* Writes the definitions and texts that gemm.inc and gemm_tma.inc both need. Call this after the kernel's own arguments
 * are passed. */
static void put_all(const lg_gemm *g, lg_plan *plan, lg_launch *launch, const lg_step *s,
                    void (*put)(const lg_gemm *g, lg_launch *launch, const lg_step *s)) {
    const lg_tile *t = &g->tile;
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"KIND", g->kind},
                   {"SIZE", g->size},
                   {"TM", t->tm},
                   {"TN", t->tn},
                   {"TK", t->tk},
                   {"WARPS_M", t->warps_m},
                   {"WARPS_N", t->warps_n},
                   {"STAGES", t->stages},
                   {"MATH", t->math == LG_BY_COPIES ? LG_BY_GROUPS : t->math},
                   {"BLOCKS", t->blocks},
                   {"A_LOAD", g->a_load},
                   {"B_LOAD", g->b_load},
                   {"CONV", g->gathers},
                   {"SPLIT", g->split},
                   {"CLUSTER", g->cluster},
                   {"ROW_SUMS", g->row_sums},
                   {"FILL", g->fill && g->window != NULL}};
    lg_text *text = &launch->source;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_define(launch, numbers[i].name, numbers[i].value);
    put(g, launch, s);
    if (g->packed_b >= 0)
        lg_put(text, "#define B_BASE ((LG_GLOBAL const W_T *)(lg_packed+lg_n%d))\n", lg_number(launch, g->packed_b));
    else if (g->turns)
        lg_put(text, "#define B_BASE (b+lg_n%d)\n", lg_number(launch, g->turned));
    else
        lg_put(text, "#define B_BASE b\n");
    if (g->table >= 0) lg_put(text, "#define TABLE lg_n%d\n", lg_number(launch, g->table));
    if (g->terms >= 0)
        lg_put(text, "#define COLUMN_TERM(c) ((LG_GLOBAL const int *)(lg_packed+lg_n%d))[c]\n",
               lg_number(launch, g->terms));
    else
        lg_put(text, "#define COLUMN_TERM(c) 0\n");
    lg_define_product(plan, launch, s);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, "mma");
    if (t->math >= LG_BY_GROUPS) lg_put_file(launch, "wgmma");
    lg_put_file(launch, "gemm_parts");
}

/* Returns the tensor map of A or B, whose boxes are panels of a tile. */
static lg_tensor_map map_of(const lg_gemm *g, const lg_step *s, int operand) {
    const bool packed = operand == 1 && g->packed_b >= 0;
    const int64_t rows = operand == 0 ? g->m : g->n, step = (operand == 0 ? g->a_m : g->b_n) * g->size;
    lg_tensor_map map = {
        .kind = packed ? LG_PACKED : LG_INPUT, .index = packed ? 0 : operand, .rank = 3, .swizzle = 128};
    map.offset = packed ? (uint64_t)g->packed_b : 0;
    map.dtype = s->inputs[operand].dtype, map.tf32 = true;
    map.sizes[0] = (uint64_t)g->depth, map.sizes[1] = (uint64_t)rows, map.sizes[2] = (uint64_t)g->z;
    map.strides[1] = (uint64_t)step, map.strides[2] = (uint64_t)(rows * step);
    map.box[0] = (uint32_t)(g->tile.tk / g->size);
    map.box[1] = (uint32_t)(operand == 0 ? g->tile.tm : g->tile.tn);
    map.box[2] = 1;
    return map;
}

static void launch_by_copies(const lg_gemm *g, lg_plan *plan, const lg_step *s, int64_t pixels,
                             void (*put)(const lg_gemm *g, lg_launch *launch, const lg_step *s)) {
    const lg_tile *t = &g->tile;
    const lg_tensor_map a = map_of(g, s, 0), b = map_of(g, s, 1);
    const int64_t tiles = (g->m + t->tm - 1) / t->tm * ((g->n + t->tn - 1) / t->tn) * g->z;
    const int threads = t->warps_m * t->warps_n * 32 + 128, units = s->machine->units;
    lg_launch *launch = lg_add(plan, "lg_gemm_tma");
    if (launch == NULL) return;
    lg_pass_map(launch, &a);
    lg_pass_map(launch, &b);
    lg_pass(launch, LG_INPUT, lg_absent(s, 2) ? 1 : 2);
    lg_pass(launch, LG_OUTPUT, 0);
    const int64_t numbers[] = {g->m, g->n, g->depth, tiles, pixels};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    put_all(g, plan, launch, s, put);
    lg_put_file(launch, "gemm_tma");
    lg_range(launch, (tiles < units ? tiles : units) * threads, 1, 1);
    lg_local(launch, (size_t)threads, 1, 1);
    launch->shared_bytes = lg_gemm_shared(t, false);
    plan->failed |= launch->source.failed;
}

/* Adds the launch that arranges the weights in scratch memory (gemm_turn.inc). */
static void turn(lg_gemm *g, lg_plan *plan) {
    const lg_window *w = g->window;
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], count = g->groups * g->b_z;
    g->turned = (int64_t)(plan->scratch_bytes + 255) / 256 * 256 / g->size;
    plan->scratch_bytes = (uint64_t)((g->turned + count) * g->size);
    lg_launch *launch = lg_add(plan, "lg_gemm_turn");
    if (launch == NULL) return;
    lg_define(launch, "KIND", g->kind);
    lg_define(launch, "SIZE", g->size);
    lg_define(launch, "BY_TAPS", g->by_taps);
    lg_define(launch, "MIRRORS", g->mirrors);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, LG_SCRATCH, 0);
    const int64_t numbers[] = {g->turned, count, g->n, g->b_n, g->depth / taps, taps, g->w_n, g->w_c, g->w_z};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_put_file(launch, "mma");
    lg_put_file(launch, "gemm_turn");
    lg_range(launch, count, 1, 1);
    lg_local(launch, 256, 1, 1);
    plan->failed |= launch->source.failed;
}

void lg_gemm_launch(const lg_gemm *of, lg_plan *plan, const lg_step *s,
                    void (*put)(const lg_gemm *g, lg_launch *launch, const lg_step *s)) {
    static const lg_window none;
    lg_gemm own = *of, *const g = &own;
    const lg_tile *t = &g->tile;
    const lg_window *w = g->window != NULL ? g->window : &none;
    const bool sums = g->split > 1 && !g->cluster;
    const int bias = lg_absent(s, 2) ? 1 : 2, threads = t->warps_m * t->warps_n * 32;
    const int64_t steps = (g->depth * g->size + t->tk - 1) / t->tk, pixels = w->out[0] * w->out[1] * w->out[2];
    if (t->math == LG_BY_COPIES) {
        launch_by_copies(g, plan, s, pixels, put);
        return;
    }
    if (sums) plan->scratch_bytes = (uint64_t)(g->split * g->z * g->m * g->n) * 4;
    if (g->turns) turn(g, plan);
    lg_launch *launch = lg_add(plan, "lg_gemm");
    if (launch == NULL) return;
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, g->turns ? LG_SCRATCH : LG_INPUT, g->turns ? 0 : 1);
    lg_pass(launch, LG_INPUT, bias);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass(launch, sums ? LG_SCRATCH : LG_OUTPUT, 0);
    const int64_t numbers[] = {g->m, g->n, g->depth, g->a_m, g->a_k, g->b_n, g->b_k, (steps + g->split - 1) / g->split};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_pass_space(launch, w->in);
    lg_pass_integer(launch, w->out[1]);
    lg_pass_integer(launch, w->out[2]);
    lg_pass_integer(launch, pixels);
    lg_pass_space(launch, w->stride);
    lg_pass_space(launch, w->pad);
    lg_pass_integer(launch, w->x_x);
    lg_pass_integer(launch, w->channels * w->in[0] * w->in[1] * w->in[2]);
    put_all(g, plan, launch, s, put);
    lg_put_file(launch, "gemm");
    lg_range(launch, (g->m + t->tm - 1) / t->tm * ((g->n + t->tn - 1) / t->tn) * threads, 1, g->z * g->split);
    lg_local(launch, (size_t)threads, 1, 1);
    launch->shared_bytes = lg_gemm_shared(t, g->cluster);
    plan->failed |= launch->source.failed;
    if (!sums || (launch = lg_add(plan, "lg_gemm_sum")) == NULL) return;
    lg_pass(launch, LG_INPUT, bias);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass(launch, LG_SCRATCH, 0);
    lg_pass_integer(launch, g->m);
    lg_pass_integer(launch, g->n);
    lg_pass_integer(launch, pixels);
    put_all(g, plan, launch, s, put);
    lg_put_file(launch, "gemm_sum");
    lg_range(launch, g->m * g->n, g->z, 1);
    lg_local(launch, 256, 1, 1);
    plan->failed |= launch->source.failed;
}
