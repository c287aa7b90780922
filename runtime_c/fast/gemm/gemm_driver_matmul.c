/* gemm_driver_matmul.c - turns matmul calls into products for the driver. Handles batches, broadcasting, transposes and
 * vectors. If b has no batch and the rows of a are evenly spaced, all batches form one tall product. */
#include "fast/gemm/gemm_driver_matmul.h"

#include "fast/gemm/gemm_driver_plan.h"
#include "fast/gemm/gemm_state.h"
#include "kernel/cost.h"
#include "kernel/step.h"
#include "ops/matmul.h"

static const ln_tensor *bias_of(const ln_call *call) {
    return call->n_inputs > 2 && call->inputs[2].dtype != LINNET_NONE ? &call->inputs[2] : NULL;
}

bool ln_gemm_matmul_can(const ln_call *call, const ln_gemm_set *const *sets, int n) {
    const ln_matmul_attributes *attributes = call->attributes;
    const ln_tensor *a = &call->inputs[0], *b = &call->inputs[1];
    if (ln_count(a) <= 0 || ln_count(b) <= 0) return false;
    ln_matmul_view v;
    ln_matmul_view_of(call, &v);
    const ln_gemm_set *set =
        ln_gemm_find_set(sets, n, a, b, bias_of(call), call->inner, v.b_axis, v.n, (int)attributes->requant);
    /* If b is a vector, the columns that an epilogue sees are M, not N. */
    return set != NULL && ln_gemm_output_ok(call, set, v.k, v.n, v.n);
}

static bool one_tall_product(const ln_matmul_view *v) {
    int64_t expected = v->m * v->a_row;
    for (int d = v->n_batch - 1; d >= 0; d--) {
        if (v->batch_dims[d] == 1) continue;
        if (v->b_batch[d] != 0 || v->a_batch[d] != expected) return false;
        expected *= v->batch_dims[d];
    }
    return true;
}

/* Returns the index, among the matrices of b, of the one that product number i uses. */
static int64_t matrix_of(const ln_matmul_view *v, int64_t i) {
    int64_t matrix = 0, weight = 1;
    for (int d = v->n_batch - 1; d >= 0; d--) {
        int64_t at = i % v->batch_dims[d];
        i /= v->batch_dims[d];
        if (v->b_batch[d] != 0) matrix += at * weight, weight *= v->batch_dims[d];
    }
    return matrix;
}

/* Tells whether rearranging a is faster than rearranging b. This is so if b is transposed and known only at run time,
   and a has few rows. */
static bool worth_turning(const ln_gemm *g, const ln_tensor *a, const ln_tensor *b, const ln_matmul_view *v) {
    return a->dtype == LINNET_F32 && b->dtype == LINNET_F32 && g->set->c_dtype == LINNET_F32 && !ln_lasting(a) &&
           !ln_lasting(b) && v->b_row == 1 && v->b_column != 1 && g->n_products == 1 && g->m <= g->set->width &&
           v->n >= 4 * g->m && v->n > g->set->rows;
}

static void turn(ln_gemm *g, const ln_matmul_view *v) {
    g->c.turned = true;
    g->n = g->m, g->m = v->n;
    g->a.operand = 1, g->a.row = v->b_column, g->a.step = 1;
    g->b.operand = 0, g->b.n = v->a_row, g->b.c = v->a_column;
}

void ln_gemm_matmul_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    ln_matmul_view v;
    ln_matmul_view_of(call, &v);
    const bool tall = one_tall_product(&v);
    ln_gemm_count(kernel, call, counts,
                  &(ln_gemm_size){.products = tall ? 1 : v.batch,
                                  .rows = tall ? v.batch * v.m : v.m,
                                  .columns = v.n,
                                  .depth = v.k,
                                  .segments = 1,
                                  .run = v.a_column == 1 && v.a_row == v.k ? v.batch * v.m * v.k : 0,
                                  .packs = !ln_packable(&call->inputs[1])});
}

linnet_status ln_gemm_matmul_configure(ln_call *call, const ln_gemm_set *const *sets, int n) {
    const ln_matmul_attributes *attributes = call->attributes;
    const ln_tensor *a = &call->inputs[0], *b = &call->inputs[1], *bias = bias_of(call);
    ln_matmul_view v;
    ln_matmul_view_of(call, &v);
    ln_gemm *g = call->state = ln_call_state(call, sizeof *g);
    if (g == NULL) return LINNET_OUT_OF_MEMORY;
    bool tall = one_tall_product(&v);
    g->set = ln_gemm_find_set(sets, n, a, b, bias, call->inner, v.b_axis, v.n, (int)attributes->requant);
    g->m = tall ? v.m * v.batch : v.m, g->n = v.n, g->k.taps = 1, g->k.kc = v.k;
    /* A vector a has no row stride. Its batches become the rows of one tall product, and the row stride is the distance
       between them. */
    g->a.plain = true, g->a.row = v.a_row;
    g->a.operand = 0, g->a.dtype = a->dtype, g->a.step = v.k == 1 ? 1 : v.a_column;
    g->b.operand = 1, g->b.n = v.b_column, g->b.c = v.b_row;
    g->init.operand = bias != NULL ? 2 : -1;
    g->init.n = bias != NULL && bias->dims[0] > 1 ? bias->strides[0] : 0;
    g->c.ldc = v.n;
    g->n_products = tall ? 1 : v.batch;
    g->n_matrices = tall ? 1 : matrix_of(&v, v.batch - 1) + 1;
    ln_gemm_product *products = ln_call_state(call, (size_t)g->n_products * sizeof *products);
    int64_t *offsets = ln_call_state(call, (size_t)g->n_matrices * sizeof *offsets);
    if (products == NULL || offsets == NULL) return LINNET_OUT_OF_MEMORY;
    for (int64_t i = 0; i < g->n_products; i++) {
        int64_t y_offset, b_offset;
        ln_gemm_product *p = &products[i];
        ln_matmul_offsets(&v, i, &p->a, &b_offset, &y_offset);
        p->matrix = matrix_of(&v, i);
        p->row = i * v.m;
        offsets[p->matrix] = b_offset;
    }
    g->products = products, g->b.matrix_offset = offsets;
    if (worth_turning(g, a, b, &v)) turn(g, &v);
    return ln_gemm_plan(call, g, g->c.turned ? a : b, v.b_axis, v.n, (int)attributes->requant);
}
