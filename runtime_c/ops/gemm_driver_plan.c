/* gemm_driver_plan.c - chooses the set of micro-kernels, the layout of panels and the blocks of a matrix product.
 * Choices depend on shapes, the ISA's tile and the number of threads only, and results on none of them. */
#include "ops/gemm_driver.h"

#include <string.h>

enum {
    BLOCK_A_BYTES = 192 << 10, /* rows of A that stay in L2 while panels pass */
    BLOCK_C_BYTES = 48 << 10,  /* a result block that waits for its epilogue */
    ITEM_MACS = 50000,         /* work below which cutting costs more than it gives */
    THREAD_MACS = 400000,      /* work below which one more thread is not worth waking */
    ITEMS_PER_THREAD = 4,
    CHUNK_AS_IS = 32,
    CHUNK_K = 2048 /* a longer K than two of these passes in chunks, so that copies and panels stay in L2 */
};

static bool is_float(int dtype) { return dtype == LINNET_F32 || dtype == LINNET_F16 || dtype == LINNET_BF16; }

static bool uniform_zero(const ln_quant *q) {
    for (uint32_t i = 1; q->zero != NULL && i < q->count; i++)
        if (q->zero[i] != q->zero[0]) return false;
    return true;
}

const ln_gemm_set *ln_gemm_find_set(const ln_gemm_set *const *sets, int n, const ln_tensor *a, const ln_tensor *b,
                                    const ln_tensor *bias, const ln_tensor *inner, int w_axis, int64_t channels,
                                    int mode) {
    const ln_gemm_set *set = NULL;
    for (int i = 0; i < n && set == NULL; i++)
        if (sets[i]->takes >> a->dtype & sets[i]->takes_b >> b->dtype & 1) set = sets[i];
    if (set == NULL) return NULL;
    if (set->c_dtype == LINNET_F32) {
        bool bias_ok = bias == NULL || bias->dtype == LINNET_NONE || is_float(bias->dtype);
        return is_float(inner->dtype) && bias_ok ? set : NULL;
    }
    if (!ln_requant_usable(a, b, w_axis, bias, inner, channels, mode) || !uniform_zero(b->quant)) return NULL;
    /* Row sums are 32-bit. */
    if (set->c_dtype == LINNET_I64 && b->quant->zero != NULL && b->quant->zero[0] != 0) return NULL;
    return set;
}

/* Whether ln_epilogue_apply has something to do: a map, or a conversion. */
static bool needs_apply(const ln_call *call) {
    if (!ln_dtype_is_float(call->inputs[0].dtype)) return call->epilogue != NULL;
    return call->outputs[0].dtype != LINNET_F32 || (call->epilogue != NULL && !call->epilogue->clamp_only);
}

/* Columns of the result as ln_epilogue_apply sees it: the innermost axis of its layout. */
static int64_t epilogue_columns(const ln_tensor *t) {
    if (t->rank == 0) return 1;
    return t->dims[t->layout == LN_LAYOUT_CHANNELS_LAST && t->rank >= 3 ? 1 : t->rank - 1];
}

bool ln_gemm_output_ok(const ln_call *call, int64_t ldc, int64_t columns) {
    int64_t seen = epilogue_columns(call->inner);
    return !needs_apply(call) || (ldc == columns && (seen == columns || seen == 1));
}

static void plan_store(const ln_call *call, ln_gemm *g) {
    const ln_epilogue *e = call->epilogue;
    g->flat = g->ldc > 1 && epilogue_columns(call->inner) == 1;
    bool to_f32 = call->outputs[0].dtype == LINNET_F32, clamp = e != NULL && e->clamp_only;
    g->low = -INFINITY, g->high = INFINITY;
    if (g->integer) {
        g->apply = e != NULL;
        return;
    }
    if (clamp && to_f32) g->low = e->low, g->high = e->high;
    /* A map with operands of its own may have one of them in the output's memory: it waits in scratch. */
    g->direct = to_f32 && !g->turned && (e == NULL || clamp || call->n_extra == 0);
    g->apply = !to_f32 || (e != NULL && !clamp);
}

static linnet_status plan_integer(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels,
                                  int mode) {
    linnet_status status =
        ln_requant_prepare(call, &call->inputs[g->a_operand], w, w_axis, call->inner, channels, mode, &g->requant);
    if (status != LINNET_OK) return status;
    if (g->set->b_dtype == LINNET_U8)
        g->b_shift = g->b_dtype == LINNET_I8 ? 128 : 0;
    else
        g->b_shift = g->b_dtype == LINNET_U8 ? -128 : 0;
    g->b_zero = (w->quant->zero == NULL ? 0 : w->quant->zero[0]) + g->b_shift;
    return LINNET_OK;
}

/* |v| without a branch: the signs of weights are as good as random. */
static int magnitude(int v) { return (v ^ v >> 31) - (v >> 31); }

/* Sum of |b| down one column. */
static int64_t column_magnitude(const ln_gemm *g, const int8_t *from) {
    int64_t sum = 0;
    for (int64_t c = 0; c < g->kc; c++)
        for (int64_t tap = 0; tap < g->taps; tap++) sum += magnitude(from[c * g->b_c + tap * g->b_tap]);
    return sum;
}

/* Whether 32 bits hold every sum of 16-bit activations, partial ones too: the constant weights and bias say so. The
 * requantisation that follows must not be one that differs by the width of sums. */
static bool fits_narrow(const ln_call *call, const ln_gemm *g, const ln_tensor *w) {
    const ln_tensor *bias = g->bias_operand < 0 ? NULL : &call->inputs[g->bias_operand];
    bool by_float = g->requant.mode == LN_REQUANT_FLOAT_RNE || g->requant.output_dtype == LINNET_F32;
    if (g->set->narrow == NULL || !by_float || w->data == NULL || (bias != NULL && bias->data == NULL) ||
        g->requant.x_zero != 0)
        return false;
    const int8_t *source = w->data;
    for (int64_t matrix = 0; matrix < g->n_matrices; matrix++)
        for (int64_t n = 0; n < g->n; n++) {
            int64_t most = column_magnitude(g, source + g->matrix_offset[matrix] + n * g->b_n);
            int64_t start =
                bias == NULL ? 0 : ln_load_i64(bias->data, g->bias_dtype, matrix * g->bias_matrix + n * g->bias_n);
            if (start > INT32_MAX || start < -INT32_MAX || most * 32768 + (start < 0 ? -start : start) > INT32_MAX)
                return false;
        }
    return true;
}

static void plan_blocks(const ln_call *call, ln_gemm *g) {
    int64_t rows = g->set->rows, width = g->set->width, c_size = (int64_t)ln_dtype_size(g->set->c_dtype);
    int64_t row_bytes = g->gather || g->run > 1 ? g->copy_stride : g->kc * g->a_size * (g->taps > 1 ? 3 : 1);
    int64_t nb = (int64_t)ln_round_up((size_t)g->n, (size_t)width), mb = ln_max(BLOCK_A_BYTES / row_bytes, rows);
    mb = ln_min(mb, 1024);
    if (!g->direct) {
        nb = ln_min(nb, ln_max(BLOCK_C_BYTES / (4 * rows * c_size) / width, 1) * width);
        mb = ln_min(mb, ln_max(BLOCK_C_BYTES / (nb * c_size), rows));
    }
    mb = mb / rows * rows;
    int64_t blocks = ln_ceil_div(g->m, mb);
    mb = (int64_t)ln_round_up((size_t)ln_ceil_div(g->m, blocks), (size_t)rows);
    int64_t macs = g->n_products * g->m * g->n * g->taps * g->kc;
    int64_t target = call->threads <= 1 ? 1 : ln_min(ITEMS_PER_THREAD * call->threads, macs / ITEM_MACS);
    while (g->n_products * ln_ceil_div(g->m, mb) * ln_ceil_div(g->n, nb) < target) {
        int64_t tiles = ln_ceil_div(ln_min(mb, g->m), rows), panels = nb / width;
        if (tiles <= 1 && panels <= 1) break;
        if (tiles >= panels)
            mb = ln_ceil_div(tiles, 2) * rows;
        else
            nb = ln_ceil_div(panels, 2) * width;
    }
    g->m_block = ln_min(mb, g->m), g->n_block = nb;
    g->m_blocks = ln_ceil_div(g->m, g->m_block), g->n_blocks = ln_ceil_div(g->n, nb);
}

/* The padding of a convolution, a run of zero points of the type that rows are read in. */
static linnet_status plan_padding(ln_call *call, ln_gemm *g) {
    if (g->plain) return LINNET_OK;
    int dtype = g->gather ? g->set->a_dtype : g->a_dtype;
    int64_t elements = (g->gather ? 1 : g->run) * g->kc;
    void *padding = ln_call_state(call, (size_t)elements * ln_dtype_size(dtype));
    if (padding == NULL) return LINNET_OUT_OF_MEMORY;
    if (g->integer)
        for (int64_t i = 0; i < elements; i++) ln_store_i64(padding, dtype, i, g->requant.x_zero);
    g->padding = padding;
    return LINNET_OK;
}

static bool as_it_is(const ln_gemm *g) { return g->a_dtype == g->set->a_dtype && g->a_k == 1; }

/* Whether the taps of a line of the kernel are one run of memory, and short enough to be worth taking as one. Few
 * positions may reach into the padding: those are copied. */
static bool in_lines(const ln_gemm *g) {
    const ln_window *w = &g->window;
    if (g->plain || !as_it_is(g) || w->kernel[2] == 1 || w->dilation[2] != 1 || g->lattice[2] != 1) return false;
    if (g->x.s[2] != g->kc || g->kc > 16 || g->taps * g->kc > CHUNK_K) return false;
    int64_t inside = (w->in[2] - w->kernel[2]) / w->stride[2] + 1;
    return w->in[2] >= w->kernel[2] && inside * 4 >= w->out[2] * 3;
}

/* Whether rows of A must be copied, or are worth it. */
static bool must_gather(const ln_gemm *g) {
    int64_t depth = g->set->depth;
    if (!as_it_is(g)) return true;
    if (g->run > 1) return false;
    if (g->taps > 1 && g->kc < 8 * depth && g->kc % (8 * depth) != 0)
        return true; /* short taps would leave the kernel's loop half empty */
    /* Rows a multiple of 2 KiB apart fall into one or two sets of the L1 cache and push each other out. */
    int64_t apart = (g->plain ? g->a_row : g->x.s[2] * g->window.stride[2]) * g->a_size;
    return apart != 0 && apart % 2048 == 0 && g->m >= g->set->rows && (g->turned || g->n > 2 * g->set->width);
}

static void plan_chunks(ln_gemm *g) {
    int64_t k = g->taps * g->kc, unit = g->plain ? 1 : g->kc, most = g->plain ? g->kc : g->taps;
    g->chunk = most, g->chunks = 1;
    if (g->b_as_is && g->b_step >= 4096) { /* each row of B is on a page of its own: only so many are walked along */
        g->chunk = ln_min(most, CHUNK_AS_IS);
        g->chunks = ln_ceil_div(most, g->chunk);
        return;
    }
    bool widened = g->panel_dtype != g->set->b_dtype;
    if (g->integer || k <= 2 * CHUNK_K || (g->m <= g->set->rows && !g->gather && !widened)) return;
    g->chunk = ln_max(ln_ceil_div(most, ln_ceil_div(k, CHUNK_K)), ln_min(most, ln_max(CHUNK_K / 2 / unit, 1)));
    g->chunks = ln_ceil_div(most, g->chunk);
}

linnet_status ln_gemm_plan(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels, int mode) {
    const ln_gemm_set *set = g->set;
    g->integer = set->c_dtype != LINNET_F32;
    g->chained = !g->plain && g->kc == 1;
    g->b_dtype = w->dtype;
    g->b_constant = w->data != NULL;
    g->init_constant = g->b_constant && (g->bias_operand < 0 || call->inputs[g->bias_operand].data != NULL);
    g->bias_dtype = g->bias_operand < 0 ? LINNET_NONE : call->inputs[g->bias_operand].dtype;
    linnet_status status = g->integer ? plan_integer(call, g, w, w_axis, channels, mode) : LINNET_OK;
    if (status != LINNET_OK) return status;
    if (g->integer && fits_narrow(call, g, w)) {
        set = g->set = set->narrow;
        g->requant.wide = false;
    }
    g->panel_dtype = set->halves && g->b_constant ? g->b_dtype : set->b_dtype;
    int64_t depth = set->depth;
    g->a_size = (int64_t)ln_dtype_size(g->a_dtype), g->copy_size = (int64_t)ln_dtype_size(set->a_dtype);
    g->run = in_lines(g) ? g->window.kernel[2] : 1;
    g->gather = must_gather(g);
    if (g->gather) g->run = g->taps;
    g->segments = g->taps / g->run;
    int64_t k = g->run * g->kc;
    g->padded = (int64_t)ln_round_up((size_t)k, (size_t)depth);
    g->length = g->gather ? g->padded : k;
    /* Few rows pass over B once or twice: it is read where it lies. */
    g->b_as_is = !g->b_constant && !g->integer && g->taps == 1 && g->b_n == 1 && g->b_dtype == set->b_dtype &&
                 g->m <= 2 * set->rows;
    g->b_step = g->b_c * (int64_t)ln_dtype_size(set->b_dtype);
    plan_chunks(g);
    /* An odd number of cache lines from row to row puts the rows of a tile into different cache sets. */
    int64_t copied = g->chunks > 1 ? g->chunk * (g->plain ? 1 : g->kc) : g->segments * g->padded;
    g->copy_stride = ((copied * g->copy_size + 63) / 64 | 1) * 64;
    int64_t column_bytes = g->segments * g->padded * (int64_t)ln_dtype_size((linnet_dtype)g->panel_dtype);
    g->panels = ln_ceil_div(g->n, set->width);
    g->panel_bytes = column_bytes * set->width;
    int64_t last = ln_gemm_panel_width(g, g->panels - 1) * column_bytes;
    if (g->b_as_is) {
        g->panel_bytes = 0;
        last = g->n % set->width == 0 ? 0 : last;
    }
    g->matrix_bytes = (int64_t)ln_round_up((size_t)((g->panels - 1) * g->panel_bytes + last), LN_ALIGNMENT);
    g->init_width = (int64_t)ln_round_up((size_t)(g->panels * set->width), 16);
    call->packing = (uintptr_t)set | (uintptr_t)(g->segments == 1 ? 1
                                                 : g->run == 1    ? 0
                                                                  : 2); /* the order of K in a panel */
    plan_store(call, g);
    status = plan_padding(call, g);
    if (status != LINNET_OK) return status;
    plan_blocks(call, g);

    size_t matrices = (size_t)(g->n_matrices * g->matrix_bytes), c_size = ln_dtype_size(set->c_dtype);
    size_t init = ln_round_up((size_t)(g->n_matrices * g->init_width) * c_size, LN_ALIGNMENT);
    g->init_offset = g->b_constant == g->init_constant ? matrices : 0;
    call->packed_bytes = (g->b_constant ? matrices : 0) + (g->init_constant ? init : 0);
    if (g->b_constant) call->packed_inputs = 1u << g->b_operand;
    if (g->init_constant && g->bias_operand >= 0) call->packed_inputs |= 1u << g->bias_operand;
    call->scratch_bytes = (g->b_constant ? 0 : matrices) + (g->init_constant ? 0 : init);
    int64_t pointers = g->chunks > 1 && !g->plain && !g->gather ? g->chunk : g->segments;
    size_t at = ln_round_up((size_t)(g->m_block * pointers) * sizeof(void *), LN_ALIGNMENT);
    g->rows_offset = at;
    if (g->b_zero != 0) at += ln_round_up((size_t)g->m_block * sizeof(int32_t), LN_ALIGNMENT);
    g->a_offset = at;
    if (g->gather || g->run > 1) at += ln_round_up((size_t)(g->m_block * g->copy_stride), LN_ALIGNMENT);
    g->b_offset = at;
    if (g->panel_dtype != set->b_dtype) {
        int64_t unit = g->plain ? 1 : g->kc;
        at += ln_round_up((size_t)(g->chunk * unit * set->width) * ln_dtype_size(set->b_dtype), LN_ALIGNMENT);
    }
    g->c_offset = at;
    if (!g->direct) at += (size_t)(g->m_block * g->n_block) * c_size;
    g->turned_offset = at;
    if (g->turned) at += (size_t)(g->m_block * g->n_block) * c_size;
    call->scratch_thread = ln_round_up(at, LN_ALIGNMENT);
    int64_t item_macs = g->m_block * g->n_block * g->taps * g->kc;
    int64_t items = g->n_products * g->m_blocks * g->n_blocks;
    call->phases = g->init_constant ? 1 : 2;
    call->work[0] = g->b_constant || g->b_as_is ? g->n_matrices : g->n_matrices * g->panels;
    call->work[g->init_constant ? 0 : 1] = items;
    call->grain = ln_max(1, THREAD_MACS / ln_max(item_macs, 1));
    call->flops = 2 * (uint64_t)(g->n_products * g->m * g->n) * (uint64_t)(g->taps * g->kc);
    return LINNET_OK;
}
