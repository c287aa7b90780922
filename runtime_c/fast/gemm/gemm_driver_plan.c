/* gemm_driver_plan.c - chooses the set of micro-kernels, the layout of panels and the blocks of a matrix product. The
 * choices depend only on shapes, the ISA's tile and the number of threads. The number of threads changes only the
 * blocks, so the results do not depend on it. */
#include "fast/gemm/gemm_driver_plan.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_bounds.h"
#include "fast/gemm/gemm_driver_fold.h"
#include "fast/gemm/gemm_driver_widen.h"
#include "fast/gemm/gemm_state.h"
#include "kernel/cost.h"
#include "kernel/machine.h"
#include "kernel/step.h"

#include <string.h>

enum {
    BLOCK_A_BYTES = 192 << 10, /* rows of A that stay in L2 while the panels are processed */
    BLOCK_C_BYTES = 48 << 10,  /* a block of results that waits for its epilogue */
    SMALL_C_BYTES = 12 << 10,  /* the same for a small product, one whose results would all fit into BLOCK_C_BYTES */
    ITEM_MACS = 50000,         /* below this amount of work, splitting takes longer than it saves */
    THREAD_MACS = 100000,      /* below this amount of work, waking another thread takes longer than it saves */
    ITEMS_PER_THREAD = 4,
    CHUNK_AS_IS = 32,
    CHUNK_K = 2048 /* a K longer than twice this is processed in chunks, so that copies and panels stay in L2 */
};

static bool is_float(int dtype) { return dtype == LINNET_F32 || dtype == LINNET_F16 || dtype == LINNET_BF16; }

void ln_gemm_count(const ln_kernel *kernel, const ln_call *call, ln_counts *counts, const ln_gemm_size *size) {
    enum { SETUP = 650 }; /* the fixed cost of a product, in moves */
    const int dtype = call->inputs[0].dtype;
    const bool floats = is_float(dtype);
    const int64_t width = kernel->tile[1], half = width / 2, rest = size->columns % width;
    const int64_t columns = size->columns - rest + (rest == 0 ? 0 : rest <= half ? half : width);
    /* A single row counts as 1.3 rows, because each of its additions waits for the one before. */
    const double rows = size->rows == 1 ? 1.3 : (double)size->rows;
    const double products = (double)size->products, a = products * (double)size->rows * (double)size->depth;
    const double b = products * (double)size->columns * (double)size->depth;
    const double results = products * (double)size->rows * (double)size->columns;
    static const int rates[] = {LN_RATE_F32, LN_RATE_I8, LN_RATE_I16};
    double least[3]; /* the work that was counted for the op itself. The new count must not be lower, as the count of a
                        folded product would be */
    for (int i = 0; i < 3; i++) least[i] = counts->work[rates[i]], counts->work[rates[i]] = 0;
#ifdef __aarch64__
    const int panel_dtype = LINNET_I16;
#else
    const int panel_dtype = LINNET_I8;
#endif
    const double parts = ln_gemm_parts(&call->inputs[1], panel_dtype);
    ln_count_macs(call, counts, parts * products * rows * (double)columns * (double)size->depth);
    for (int i = 0; i < 3; i++)
        if (counts->work[rates[i]] < least[i]) counts->work[rates[i]] = least[i];
    /* Counts the stores of sums, the requantization of integer sums (which is fast in tiles of AVX2), and maps, which
     * load the stored sums again. */
    const bool bytes = ln_dtype_size(dtype) == 1, widened = ln_gemm_widened_by(kernel, dtype);
#ifdef __aarch64__
    if (widened) { /* on ARM, products of 16 bits are slower than the products of bytes that other kernels compute */
        counts->work[LN_RATE_I16] += counts->work[LN_RATE_I8];
        counts->work[LN_RATE_I8] = 0;
    }
#endif
    const bool halves = (kernel->needs & LN_HALVES) != 0;
    const double store = ln_lanes(kernel) >= 8 ? 4 : 9, one = bytes && ln_lanes(kernel) == 16 ? 1.5 : 0.5;
    counts->work[LN_RATE_MAP] += results * (floats ? 0.7 : bytes ? store : 6);
    if (call->epilogue != NULL && !halves &&
        (floats ? call->outputs[0].dtype != LINNET_F32 : !call->epilogue->clamp_only))
        counts->work[LN_RATE_MAP] += results * (floats ? 5 : bytes ? store : 4);
    if (size->segments > 1) counts->work[LN_RATE_MAP] += products * (double)size->rows * (double)size->segments * 0.9;
    /* Rows are converted if their dtype is not that of the products, or if there is no dot product of bytes. AVX-512
     * needs the sums of their bytes. Blocks overlap, so that some elements of a run are widened twice. */
    const double per_row = dtype == LINNET_F32 || halves ? 0 : floats ? 2.1 : widened ? 6.2 : one;
    counts->work[LN_RATE_MAP] += widened && size->run > 0 ? 1.2 * (double)size->run : a * per_row;
    if (widened) counts->read += b;
    if (size->scattered) counts->work[LN_RATE_MOVE] += (floats ? 1.3 : 1.8) * a;
    if (size->packs) counts->work[LN_RATE_MOVE] += parts * b * (floats ? 0.7 : 2);
    /* With few rows, computing does not hide the time until the next part of B arrives. */
    const double weights = b * (double)ln_dtype_size(call->inputs[1].dtype);
    if (floats && size->rows <= 2 && weights > 2 * LN_OWN_CACHE && weights < LN_SHARED_CACHE)
        counts->read += 1.3 * weights;
    /* Counts the beginning and the end of each tile. Rows at the edge count the same in every set. Otherwise the number
     * of rows could decide which set computes a product, and so change its result, because float sums differ between
     * sets. */
    const double stripes = products * (double)ln_ceil_div(size->rows, kernel->tile[0]);
    counts->work[LN_RATE_MOVE] += SETUP + 12 * stripes * (double)ln_ceil_div(size->columns, width);
}

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
    if (b->dtype == LINNET_I16 && ln_count(b) / ln_max(channels, 1) >= 65536) return NULL; /* row sums have 32 bits */
    /* Zero points of b need row sums, which have only 32 bits. */
    if (set->c_dtype == LINNET_I64 && b->quant->zero != NULL && b->quant->zero[0] != 0) return NULL;
    return set;
}

/* Tells whether ln_epilogue_apply has work to do: a map, or a conversion. */
static bool needs_apply(const ln_call *call) {
    if (!ln_dtype_is_float(call->inputs[0].dtype)) return call->epilogue != NULL;
    return call->outputs[0].dtype != LINNET_F32 || (call->epilogue != NULL && !call->epilogue->clamp_only);
}

/* Returns the number of columns of the result as ln_epilogue_apply sees it: the innermost axis of its layout. */
static int64_t epilogue_columns(const ln_tensor *t) { return t->rank == 0 ? 1 : t->dims[ln_inner_axis(t)]; }

/* Tells whether micro-kernels can store the results as f16, with at most a residual and limits. */
static bool stores_halves(const ln_call *call, const ln_gemm_set *set) {
    const ln_epilogue *e = call->epilogue;
    return set->stores_halves && call->outputs[0].dtype == LINNET_F16 && (e == NULL || e->half_sum);
}

bool ln_gemm_output_ok(const ln_call *call, const ln_gemm_set *set, int64_t depth, int64_t ldc, int64_t columns) {
    int64_t seen = epilogue_columns(call->inner);
    const bool alone = call->epilogue == NULL || call->epilogue->half_added == 0;
    if (stores_halves(call, set) && depth <= 2 * CHUNK_K && (alone || ldc == columns)) return true;
    return !needs_apply(call) || (ldc == columns && (seen == columns || seen == 1));
}

static void plan_store(const ln_call *call, ln_gemm *g) {
    const ln_epilogue *e = call->epilogue;
    const bool folded = ln_gemm_unfolds(g);
    g->c.flat = g->c.ldc > 1 && epilogue_columns(call->inner) == 1;
    bool to_f32 = call->outputs[0].dtype == LINNET_F32, clamp = e != NULL && e->clamp_only;
    g->c.low = -INFINITY, g->c.high = INFINITY;
    if (g->c.integer) {
        const bool whole = g->b.parts == 1 && !folded;
        const bool narrow = g->set->c_dtype == LINNET_I32;
        const bool words = e != NULL ? e->sum.used && e->sum.words
                                     : g->c.requant.mode == LN_REQUANT_FLOAT_RNE && call->inner->dtype == LINNET_I16;
        g->c.requant.rounded = !narrow && whole && words && g->set->words && ln_gemm_fits_double(call, g);
        const bool in_tile = whole && (narrow || g->c.requant.rounded);
        const bool sums = g->set->store_sum != NULL && in_tile;
        if (e != NULL && e->sum.used && sums && (!e->sum.words || g->set->words)) g->c.sum = &e->sum;
        g->c.apply = e != NULL && g->c.sum == NULL;
        g->c.tiled = !g->c.apply && g->set->store_tile != NULL && in_tile;
        return;
    }
    g->c.halves = stores_halves(call, g->set) && g->k.chunks == 1 && !folded && !g->c.turned;
    if (g->c.halves) {
        g->c.direct = true;
        if (e != NULL) g->c.residual = e->half_added, g->c.low = e->low, g->c.high = e->high;
        return;
    }
    const bool adds = (g->set->strip != NULL || g->set->adds) && g->k.chunks == 1 && !folded && !g->c.turned;
    if (e != NULL && e->residual != 0 && adds) g->c.residual = e->residual;
    if ((clamp && to_f32) || g->c.residual != 0) g->c.low = e->low, g->c.high = e->high;
    /* An operand of a map may share the output's memory, so the result waits in scratch. With a residual it does not
     * wait, because each element of the residual is read just before the result is stored there. */
    g->c.direct = to_f32 && !g->c.turned && !folded && (e == NULL || clamp || call->n_extra == 0 || g->c.residual != 0);
    g->c.apply = !to_f32 || (e != NULL && !clamp && g->c.residual == 0);
    g->c.tiled = ln_is_half(call->outputs[0].dtype) && (e == NULL || e->half_sum) && g->set->strip == NULL &&
                 !g->c.turned && !folded && !g->c.flat && g->k.chunks == 1;
}

static linnet_status plan_integer(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels,
                                  int mode) {
    linnet_status status =
        ln_requant_prepare(call, &call->inputs[g->a.operand], w, w_axis, call->inner, channels, mode, &g->c.requant);
    if (status == LINNET_OK && ln_gemm_unfolds(g)) status = ln_gemm_fold_tables(call, g);
    if (status != LINNET_OK) return status;
    if (g->set->b_dtype == LINNET_I16)
        g->b.shift = 0;
    else if (g->b.parts == 2)
        g->b.shift = ln_gemm_beyond_parts(w) ? -128 : 0;
    else if (g->set->b_dtype == LINNET_U8)
        g->b.shift = g->b.dtype == LINNET_I8 ? 128 : 0;
    else
        g->b.shift = g->b.dtype == LINNET_U8 ? -128 : 0;
    g->b.zero = (w->quant->zero == NULL ? 0 : w->quant->zero[0]) + g->b.shift;
    return LINNET_OK;
}

static void plan_blocks(const ln_call *call, ln_gemm *g) {
    int64_t rows = g->set->rows, width = g->set->width, c_size = (int64_t)ln_dtype_size(g->set->c_dtype) * g->b.parts;
    int64_t row_bytes = g->set->strip != NULL         ? ln_gemm_packed_row(g)
                        : g->a.gather || g->k.run > 1 ? g->a.copy_stride
                                                      : g->k.kc * g->a.size * (g->k.taps > 1 ? 3 : 1);
    const bool whole = ln_gemm_unfolds(g) && g->c.apply; /* the epilogue needs whole lines of the output, so a block
                                                            gets all columns */
    int64_t nb = (int64_t)ln_round_up((size_t)g->n, (size_t)width), mb = ln_max(BLOCK_A_BYTES / row_bytes, rows);
    mb = ln_min(mb, 1024);
    if (!g->c.direct && !g->c.tiled) {
        /* If all results would fit into one block, there are a few small blocks instead, which take as long and need
         * less memory. */
        const bool small = g->c.integer && g->m * nb * c_size <= BLOCK_C_BYTES;
        /* An epilogue is faster on whole rows of the result. */
        if (!whole && !(g->c.apply && g->c.integer && nb <= 512))
            nb = ln_min(nb, ln_max(BLOCK_C_BYTES / (4 * rows * c_size) / width, 1) * width);
        mb = ln_min(mb, ln_max((small ? SMALL_C_BYTES : BLOCK_C_BYTES) / (nb * c_size), rows));
    }
    /* Results that are stored tile by tile do not wait in scratch, but the copies of converted rows do. If all results
     * would fit into one block, a block gets as many rows as if the results waited, so that such a call does not need
     * more memory. */
    const bool converted = g->a.dtype != g->set->a_dtype || g->a.widened != LINNET_NONE;
    if (g->c.integer && g->c.tiled && converted && g->m * nb * c_size <= BLOCK_C_BYTES)
        mb = ln_min(mb, ln_max(SMALL_C_BYTES / (nb * c_size), rows));
    const int64_t tiles = ln_ceil_div(g->m, rows), panels = ln_ceil_div(g->n, width);
    const int64_t macs = g->n_products * g->m * g->n * g->k.taps * g->k.kc;
    const int64_t target = call->threads <= 1 ? 1 : ln_min(ITEMS_PER_THREAD * call->threads, macs / ITEM_MACS);
    int64_t high = ln_ceil_div(tiles, mb / rows), wide = ln_ceil_div(panels, nb / width);
    while (g->n_products * high * wide < target) {
        const int64_t height = ln_ceil_div(tiles, high), breadth = whole ? 1 : ln_ceil_div(panels, wide);
        if (height <= 1 && breadth <= 1) break;
        if (height >= breadth)
            high = ln_min(2 * high, tiles);
        else
            wide = ln_min(2 * wide, panels);
    }
    /* Adds blocks until every thread gets the same number. */
    while (target > 1 && g->n_products * high * wide % call->threads != 0 && high < ln_min(tiles, 2 * target)) high++;
    g->blocks.m_count = high, g->blocks.n_count = wide;
    g->blocks.m = ln_min(ln_ceil_div(tiles, high) * rows, g->m), g->blocks.n = ln_ceil_div(panels, wide) * width;
    g->blocks.rows_first = g->n_products > 1 && g->products[0].row == g->products[1].row;
    if (g->b.parts == 1) return;
    g->c.part_bytes = g->blocks.m * g->blocks.n * (int64_t)ln_dtype_size(g->set->c_dtype);
    if (g->set->c_dtype == LINNET_I32) g->c.requant.low_at = g->c.part_bytes;
}

/* Allocates the padding of a convolution: a run of zero points in the type that rows are read in. */
static linnet_status plan_padding(ln_call *call, ln_gemm *g) {
    if (g->a.plain) return LINNET_OK;
    int dtype = g->a.gather ? g->set->a_dtype : g->a.dtype;
    int64_t elements = g->a.gather ? g->k.kc : ln_max(g->k.length, g->k.run * g->k.kc);
    void *padding = ln_call_state(call, (size_t)elements * ln_dtype_size(dtype));
    if (padding == NULL) return LINNET_OUT_OF_MEMORY;
    if (g->c.integer)
        for (int64_t i = 0; i < elements; i++) ln_store_i64(padding, dtype, i, g->c.requant.x_zero);
    if (ln_gemm_splits(g->set) && g->a.widened != LINNET_NONE)
        g->set->convert(padding, padding, 1, elements, g->a.widened);
    g->a.padding = padding;
    return LINNET_OK;
}

static bool as_it_is(const ln_gemm *g) { return g->a.dtype == g->set->a_dtype && g->a.step == 1; }

/* Tells whether the taps of a line of the kernel are contiguous in memory, and short enough to be read as one segment.
 * Only few positions may reach into the padding, because the lines of these positions are copied. */
static bool in_lines(const ln_gemm *g) {
    const ln_window *w = &g->a.window;
    if (g->a.plain || !as_it_is(g) || w->kernel[2] == 1 || w->dilation[2] != 1 || g->a.lattice[2] != 1) return false;
    if (g->a.x.s[2] != g->k.kc || g->k.kc > 16 || g->k.taps * g->k.kc > CHUNK_K) return false;
    if (g->set->whole && w->kernel[2] * g->k.kc % g->set->depth != 0) return false;
    /* The lines of a row are copied if the micro-kernel takes longer for the start of a line than for its products. */
    if (g->a.widened != LINNET_NONE && w->kernel[2] * g->k.kc < 16) return false;
    int64_t inside = (w->in[2] - w->kernel[2]) / w->stride[2] + 1;
    return w->in[2] >= w->kernel[2] && inside * 4 >= w->out[2] * 3;
}

/* Tells whether the rows of A must be copied, or are faster to read after copying. */
static bool must_gather(const ln_gemm *g) {
    const int64_t depth =
        g->set->whole ? ln_min(g->set->depth, 4) : g->set->depth; /* elements of K that the micro-kernel multiplies in
                                                                     one step */
    if (!as_it_is(g) || (ln_gemm_splits(g->set) && g->a.widened == LINNET_NONE)) return true;
    if (g->k.run > 1) return false;
    if (g->set->strip != NULL && (g->a.plain || g->k.taps == 1 || g->k.kc >= 4))
        return false; /* packing A copies it anyway */
    if (g->set->whole && g->k.kc % g->set->depth != 0) return true;
    if (g->k.taps > 1 && g->k.kc < 8 * depth && g->k.kc % (8 * depth) != 0)
        return true; /* the last step of every tap may be partly empty, which costs much if taps are short */
    /* Rows that are a multiple of 2 KiB apart map to one or two sets of the L1 cache and evict each other. */
    int64_t apart = (g->a.plain ? g->a.row : g->a.x.s[2] * g->a.window.stride[2]) * g->a.size;
    return apart != 0 && apart % 2048 == 0 && g->m >= g->set->rows && (g->c.turned || g->n > 2 * g->set->width);
}

static void plan_chunks(ln_gemm *g) {
    int64_t k = g->k.taps * g->k.kc, unit = g->a.plain ? 1 : g->k.kc, most = g->a.plain ? g->k.kc : g->k.taps;
    g->k.chunk = most, g->k.chunks = 1;
    if (g->b.as_is &&
        g->b.step >= 4096) { /* each row of B is on a page of its own, so only some rows are read at a time */
        g->k.chunk = ln_min(most, CHUNK_AS_IS);
        g->k.chunks = ln_ceil_div(most, g->k.chunk);
        return;
    }
    bool widened = g->b.panel_dtype != g->set->b_dtype;
    if (g->c.integer || g->set->depth > 1 || k <= 2 * CHUNK_K || (g->m <= g->set->rows && !g->a.gather && !widened))
        return;
    g->k.chunk = ln_max(ln_ceil_div(most, ln_ceil_div(k, CHUNK_K)), ln_min(most, ln_max(CHUNK_K / 2 / unit, 1)));
    g->k.chunks = ln_ceil_div(most, g->k.chunk);
}

/* Tells whether packing A takes longer than it saves: few columns use A, or few rows use B. */
static bool in_place(const ln_gemm *g) {
    return g->k.chained || g->c.turned || (g->m > 1 && g->n <= g->set->width - g->set->unit) ||
           (!g->b.constant && g->m <= 2 * g->set->rows);
}

/* Plans the integer arithmetic, constants and dtypes. Narrows the set if the weights prove that 32 bits hold the sums.
 */
static linnet_status plan_operands(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels,
                                   int mode) {
    g->c.integer = g->set->c_dtype != LINNET_F32;
    g->k.chained = !g->a.plain && g->k.kc == 1;
    g->b.dtype = w->dtype;
    g->b.parts = ln_gemm_parts(w, g->set->b_dtype);
    g->b.constant = ln_packable(w);
    if (g->set->in_place != NULL && in_place(g)) g->set = g->set->in_place;
    if (g->set->in_order != NULL && ln_in_order()) g->set = g->set->in_order;
    g->init.constant = g->b.constant && (g->init.operand < 0 || ln_packable(&call->inputs[g->init.operand]));
    g->init.dtype = g->init.operand < 0 ? LINNET_NONE : call->inputs[g->init.operand].dtype;
    linnet_status status = g->c.integer ? plan_integer(call, g, w, w_axis, channels, mode) : LINNET_OK;
    if (status != LINNET_OK) return status;
    if (g->c.integer && ln_gemm_fits_narrow(call, g, w)) {
        g->set = g->set->narrow;
        g->c.requant.wide = g->b.parts == 2;
    }
    g->b.panel_dtype = g->set->halves && g->b.constant ? g->b.dtype : g->set->b_dtype;
    g->a.widened = g->c.integer && ln_gemm_widens(g) ? g->a.dtype : LINNET_NONE;
    if (g->a.widened != LINNET_NONE) g->a.dtype = g->set->a_dtype;
    g->a.size = (int64_t)ln_dtype_size(g->a.dtype), g->a.copy_size = (int64_t)ln_dtype_size(g->set->a_dtype);
    return LINNET_OK;
}

/* Plans how K is divided into segments and chunks, and whether A is copied and B is read in place. */
static void plan_depth(ln_gemm *g) {
    g->k.run = in_lines(g) ? g->a.window.kernel[2] : 1;
    g->a.gather = must_gather(g);
    if (g->a.gather) g->k.run = g->k.taps;
    g->k.segments = g->k.taps / g->k.run;
    int64_t k = g->k.run * g->k.kc;
    g->k.padded = (int64_t)ln_round_up((size_t)k, (size_t)g->set->depth);
    /* A segment that is one line of the kernel may not be a multiple of `depth` long. With `beyond`, the micro-kernel
     * then reads on to the next multiple. What it reads there does not matter, because the panel of B has zeros for
     * these elements. */
    const bool beyond = g->k.run > 1 && g->c.integer && g->b.zero == 0 && g->set->depth == 4;
    g->k.length = g->a.gather || beyond ? g->k.padded : k;
    /* B is read in place if at most two tiles of rows are multiplied with it. Packing B would take longer than it
     * saves. */
    g->b.as_is = !g->b.constant && !g->c.integer && g->k.taps == 1 && g->b.n == 1 && g->b.dtype == g->set->b_dtype &&
                 g->m <= 2 * g->set->rows;
    g->b.step = g->b.c * (int64_t)ln_dtype_size(g->set->b_dtype);
    plan_chunks(g);
    /* An odd number of cache lines between rows puts the rows of a tile into different cache sets. */
    int64_t copied = g->k.chunks > 1 ? g->k.chunk * (g->a.plain ? 1 : g->k.kc) : g->k.segments * g->k.padded;
    g->a.copy_stride = ((copied * g->a.copy_size + 63) / 64 | 1) * 64;
}

static void plan_panels(ln_call *call, ln_gemm *g) {
    const int64_t width = g->set->width;
    int64_t column_bytes =
        g->k.segments * g->k.padded * (int64_t)ln_dtype_size((linnet_dtype)g->b.panel_dtype) * g->b.parts;
    g->b.panels = ln_ceil_div(g->n, width);
    g->b.panel_bytes = column_bytes * width;
    int64_t last = ln_gemm_panel_width(g, g->b.panels - 1) * column_bytes;
    if (g->b.as_is) {
        g->b.panel_bytes = 0;
        last = g->n % width == 0 ? 0 : last;
    }
    g->b.matrix_bytes = (int64_t)ln_round_up((size_t)((g->b.panels - 1) * g->b.panel_bytes + last), LN_ALIGNMENT);
    g->init.width = (int64_t)ln_round_up((size_t)(g->b.panels * width), 16);
    const uint64_t order_of_k = g->k.segments == 1 ? 1 : g->k.run == 1 ? 0 : 2;
    /* The number describes everything about the set that packing depends on. It is stored in files, so it must not be
     * an address. */
    const ln_gemm_set *s = g->set;
    const uint64_t sizes = s->width | (uint64_t)s->depth << 8 | (uint64_t)s->unit << 16 | (uint64_t)s->b_dtype << 24;
    const uint64_t dtypes = s->c_dtype | (uint64_t)g->b.panel_dtype << 8 | (uint64_t)s->symmetric << 16 |
                            order_of_k << 17 | (uint64_t)ln_gemm_splits(s) << 19;
    call->packing = sizes | dtypes << 32;
}

/* Plans the packed bytes, and the scratch of the call and of a thread. */
static void plan_memory(ln_call *call, ln_gemm *g) {
    size_t matrices = (size_t)(g->n_matrices * g->b.matrix_bytes), c_size = ln_dtype_size(g->set->c_dtype);
    size_t init = ln_round_up((size_t)(g->n_matrices * g->b.parts * g->init.width) * c_size, LN_ALIGNMENT);
    g->init.offset = g->b.constant == g->init.constant ? matrices : 0;
    call->packed_bytes = (g->b.constant ? matrices : 0) + (g->init.constant ? init : 0);
    if (g->b.constant) call->packed_inputs = 1u << g->b.operand;
    if (g->init.constant && g->init.operand >= 0) call->packed_inputs |= 1u << g->init.operand;
    call->scratch_bytes = (g->b.constant ? 0 : matrices) + (g->init.constant ? 0 : init);
    int64_t pointers = g->k.chunks > 1 && !g->a.plain && !g->a.gather ? g->k.chunk : g->k.segments;
    size_t at = ln_round_up((size_t)(g->blocks.m * pointers) * sizeof(void *), LN_ALIGNMENT);
    g->scratch.rows = at;
    if (g->b.zero != 0) at += ln_round_up((size_t)g->blocks.m * sizeof(int32_t), LN_ALIGNMENT);
    g->scratch.widened = at;
    if (g->a.widened != LINNET_NONE) at += ln_round_up((size_t)ln_gemm_widened_bytes(g), LN_ALIGNMENT);
    g->scratch.a = at;
    const int64_t copies = g->set->strip != NULL && g->a.gather ? ln_min(g->blocks.m, LN_GEMM_GATHERED) : g->blocks.m;
    if (g->a.gather || g->k.run > 1) at += ln_round_up((size_t)(copies * g->a.copy_stride), LN_ALIGNMENT);
    g->scratch.packed = at;
    if (g->set->strip != NULL) at += ln_round_up((size_t)(g->blocks.m * ln_gemm_packed_row(g)), LN_ALIGNMENT);
    g->scratch.b = at;
    if (g->b.panel_dtype != g->set->b_dtype) {
        int64_t unit = g->a.plain ? 1 : g->k.kc;
        at += ln_round_up((size_t)(g->k.chunk * unit * g->set->width) * ln_dtype_size(g->set->b_dtype), LN_ALIGNMENT);
    }
    g->scratch.c = at;
    if (g->c.tiled)
        at += (size_t)g->set->rows * ln_max(1, g->set->tiles) * g->set->width * c_size;
    else if (!g->c.direct)
        at += (size_t)(g->blocks.m * g->blocks.n * g->b.parts) * c_size;
    g->scratch.turned = at;
    if (g->c.turned) at += (size_t)(g->blocks.m * g->blocks.n) * c_size;
    if (ln_gemm_unfolds(g)) at += (size_t)(g->blocks.m * g->fold->run) * c_size + (size_t)g->c.requant.low_at;
    call->scratch_thread = ln_round_up(at, LN_ALIGNMENT);
}

/* Plans phases and work items. Operands that are known only at run time are packed first. */
static void plan_items(ln_call *call, const ln_gemm *g) {
    int64_t item_macs = g->blocks.m * g->blocks.n * g->k.taps * g->k.kc;
    int64_t items = g->n_products * g->blocks.m_count * g->blocks.n_count;
    call->phases = g->init.constant ? 1 : 2;
    call->work[0] = g->b.constant || g->b.as_is ? g->n_matrices : g->n_matrices * g->b.panels;
    call->work[g->init.constant ? 0 : 1] = items;
    call->grain = ln_max(1, THREAD_MACS / ln_max(item_macs, 1));
    call->flops = 2 * (uint64_t)(g->n_products * g->m * g->n) * (uint64_t)(g->k.taps * g->k.kc);
}

linnet_status ln_gemm_plan(ln_call *call, ln_gemm *g, const ln_tensor *w, int w_axis, int64_t channels, int mode) {
    linnet_status status = plan_operands(call, g, w, w_axis, channels, mode);
    if (status != LINNET_OK) return status;
    plan_depth(g);
    if (g->set->b_dtype == LINNET_I16) g->k.bounded = ln_gemm_bounded(g, w);
    plan_panels(call, g);
    plan_store(call, g);
    status = plan_padding(call, g);
    if (status != LINNET_OK) return status;
    plan_blocks(call, g);
    plan_memory(call, g);
    plan_items(call, g);
    return LINNET_OK;
}
