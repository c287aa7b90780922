/* gemm_matmul.c - matrix products by the kernels of gemm.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/matmul.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/cuda/gemm.h"
#include "kernels_gpu/cuda/gemm_tiles.h"

static bool open(const lg_step *s, bool adds, lg_gemm *g, lg_matmul *z) {
    const int kind = lg_gemm_kind(s, adds);
    if (kind < 0 || !lg_can_multiply(s) || !lg_matmul_open(s, z) || z->depth < 1) return false;
    *g = (lg_gemm){.m = z->m, .n = z->n, .depth = z->depth, .z = z->matrices, .a_m = z->a_m, .a_k = z->a_k};
    g->b_n = z->b_n, g->b_k = z->b_k, g->kind = kind, g->size = lg_bytes_of(s->inputs[0].dtype);
    g->groups = 1, g->packed_b = g->table = g->terms = -1;
    const int other = g->size == 4 ? LG_LOAD_WORDS : LG_LOAD_GATHER;
    const bool whole = g->depth * g->size % 16 == 0;
    g->a_load = whole && g->a_k == 1 && g->a_m * g->size % 16 == 0 ? LG_LOAD_CHUNKS : other;
    g->b_load = whole && g->b_k == 1 && g->b_n * g->size % 16 == 0 ? LG_LOAD_CHUNKS : other;
    if (g->size == 2 && g->b_n == 1 && g->n % 8 == 0 && g->b_k % 8 == 0) g->b_load = LG_LOAD_TURNED;
    g->packs = s->inputs[1].constant && s->inputs[1].data != NULL && z->b_outer == 0 &&
               (g->b_load != LG_LOAD_CHUNKS || kind == LG_KIND_TF32);
    if (g->packs) g->b_load = LG_LOAD_CHUNKS;
    g->dense = g->a_load == LG_LOAD_CHUNKS && g->b_load == LG_LOAD_CHUNKS && s->inputs[0].rank > 1 &&
               lg_count(&s->inputs[0]) == g->z * g->m * g->depth && lg_count(&s->inputs[1]) == g->z * g->n * g->depth;
    if (g->m > INT32_MAX / 2 || g->n > INT32_MAX / 2) return false;
    return lg_is_float(s->inputs[0].dtype) || lg_gemm_can_zeros(s);
}

static bool can(const lg_step *s, bool adds) {
    lg_gemm g;
    lg_matmul z;
    return open(s, adds, &g, &z) && lg_gemm_choose(&g, s->machine);
}

static void put(const lg_gemm *g, lg_launch *launch, const lg_step *s) {
    lg_matmul z;
    (void)g;
    if (!lg_matmul_open(s, &z)) return;
    const int y_outer = z.matrices == 1 ? 0 : s->result.rank - (s->inputs[0].rank > 1) - (s->inputs[1].rank > 1);
    lg_put_batch(launch, "A_OFFSET", &s->inputs[0], z.a_outer, &s->result, y_outer);
    lg_put_batch(launch, "B_OFFSET", &s->inputs[1], z.b_outer, &s->result, y_outer);
    lg_put(&launch->source,
           "#define CHANNEL(z) 0\n#define PLACE(z,row) (((z)*m+(row))*n)\n#define Y_STEP 1\n#define BIAS_AT(i) %s\n",
           !lg_absent(s, 2) && lg_count(&s->inputs[2]) == 1 ? "0" : "(i)");
}

static void build(const lg_step *s, lg_plan *plan, bool adds) {
    lg_gemm g;
    lg_matmul z;
    if (!open(s, adds, &g, &z)) {
        plan->failed = true;
        return;
    }
    if (!lg_is_float(s->inputs[0].dtype)) lg_gemm_zeros(&g, plan, s);
    if (g.packs) lg_gemm_pack(&g, plan, s, NULL);
    plan->failed |= !lg_gemm_choose(&g, s->machine);
    if (!plan->failed) lg_gemm_launch(&g, plan, s, put);
}

bool lg_can_matmul_tensor(const lg_step *s) { return can(s, false); }
void lg_build_matmul_tensor(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
bool lg_can_matmul_tiles(const lg_step *s) { return can(s, true); }
void lg_build_matmul_tiles(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
