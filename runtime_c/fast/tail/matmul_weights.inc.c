/* matmul_weights.inc.c - products of f32 by quantized weights of 4 or 8 bits, which stay narrow in memory.
 * A few columns of b at a time are unpacked to f32 in the thread's scratch, and all rows of a are multiplied by them.
 */
#include "fast/tail/matmul_weights_plan.h"
#include "kernel/common/quant_unpack.h"

enum {
#if defined(LN_SIMD_AVX512) || defined(LN_SIMD_NEON)
    WEIGHT_ROWS = 4, /* rows of a and columns of b in one tile: sums and operands fit the registers */
#else
    WEIGHT_ROWS = 3,
#endif
    WEIGHT_COLUMNS = 4
};

/* y[r][c] = start[c] + sum over k of a[r][k] * w[c][k]. Lines of w have `padded` numbers, with zeros after k. `rows` is
   a compile-time constant. The sums do not depend on the tile that a row is in. */
static LN_ALWAYS_INLINE void weight_tile(const int rows, const float *a, int64_t a_row, const float *w, int64_t k,
                                         int64_t padded, float sums[][WEIGHT_COLUMNS]) {
    vf total[4][WEIGHT_COLUMNS];
    LN_UNROLL
    for (int r = 0; r < rows; r++) {
        LN_UNROLL
        for (int c = 0; c < WEIGHT_COLUMNS; c++) total[r][c] = vf_zero();
    }
    for (int64_t i = 0; i < k; i += VF_WIDTH) {
        vf b[WEIGHT_COLUMNS];
        LN_UNROLL
        for (int c = 0; c < WEIGHT_COLUMNS; c++) b[c] = vf_load(w + c * padded + i);
        LN_UNROLL
        for (int r = 0; r < rows; r++) {
            const float *from = a + r * a_row + i;
            const vf v = k - i >= VF_WIDTH ? vf_load(from) : vf_load_partial(from, (int)(k - i));
            LN_UNROLL
            for (int c = 0; c < WEIGHT_COLUMNS; c++) total[r][c] = vf_fma(v, b[c], total[r][c]);
        }
    }
    LN_UNROLL
    for (int r = 0; r < rows; r++) {
        LN_UNROLL
        for (int c = 0; c < WEIGHT_COLUMNS; c++) sums[r][c] = vf_reduce_add(total[r][c]);
    }
}

/* The 16 numbers of 4 bits in 8 bytes, as bytes in the same order. */
static inline void spread_nibbles(const uint8_t *from, uint8_t to[16]) {
    for (int half = 0; half < 2; half++) {
        uint32_t word;
        memcpy(&word, from + 4 * half, sizeof word);
        uint64_t v = word;
        v = (v | v << 16) & UINT64_C(0x0000ffff0000ffff);
        v = (v | v << 8) & UINT64_C(0x00ff00ff00ff00ff);
        v = (v | v << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
        memcpy(to + 8 * half, &v, sizeof v);
    }
}

/* Unpacks a whole line of the last dimension, which begins at element `first`. The usual blocks, of 16 numbers of 4
 * bits or a multiple, are unpacked in vectors; the results are those of ln_quant_unpack. */
static void unpack_line(const ln_tensor *b, const void *data, int64_t first, int64_t n, float *out) {
    const ln_quant *q = b->quant;
    const bool nibbles = b->dtype == LINNET_I4 || b->dtype == LINNET_U4;
    if (!nibbles || q->scheme != LN_QUANT_BLOCK || q->axis != b->rank - 1 || q->block % 16 != 0 || n % 16 != 0 ||
        n != b->dims[b->rank - 1]) {
        ln_quant_unpack(b, data, first, n, out);
        return;
    }
    const uint8_t *bytes = (const uint8_t *)data + first / 2;
    const int turn = b->dtype == LINNET_I4 ? 8 : 0; /* i4: a number is its code, with bit 3 turned, minus 8 */
    int64_t k = first / n * ln_ceil_div(n, q->block);
    for (int64_t i = 0; i < n; k++) {
        const vf scale = vf_set1(q->scale[k]);
        const vi zero = vi_set1((q->zero != NULL ? q->zero[k] : 0) + turn), flip = vi_set1(turn);
        for (const int64_t end = ln_min(n, i + q->block); i < end; i += 16, bytes += 8) {
            uint8_t codes[16];
            spread_nibbles(bytes, codes);
            for (int v = 0; v < 16; v += VF_WIDTH)
                vf_store(out + i + v, vf_mul(vf_from_vi(vi_sub(vi_xor(vi_load_u8(codes + v), flip), zero)), scale));
        }
    }
}

/* Unpacks columns [first, first + n) of the matrix of b that begins at `at`, as lines of `padded` numbers. */
static void unpack_columns(const ln_call *call, const ln_weights *s, const void *data, int64_t at, int64_t first,
                           int64_t n, float *out) {
    const ln_tensor *b = &call->inputs[1];
    const ln_matmul_view *v = &s->view;
#if defined(LN_SIMD_AVX512)
    /* ln_quant_unpack has SSE instructions, which are four times slower while upper halves of registers are in use. */
    _mm256_zeroupper();
#endif
    memset(out, 0, (size_t)(s->panel * s->padded) * sizeof *out);
    if (v->b_row == 1) {
        for (int64_t c = 0; c < n; c++) unpack_line(b, data, at + (first + c) * v->b_column, v->k, out + c * s->padded);
        return;
    }
    float line[LN_WEIGHT_PANEL];
    for (int64_t k = 0; k < v->k; k++) { /* the columns are consecutive */
        ln_quant_unpack(b, data, at + k * v->b_row + first, n, line);
        for (int64_t c = 0; c < n; c++) out[c * s->padded + k] = line[c];
    }
}

static linnet_status weights_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                                 int thread) {
    (void)phase;
    const ln_weights *s = call->state;
    const ln_matmul_view *v = &s->view;
    const float *bias = call->n_inputs > 2 ? b->inputs[2] : NULL;
    float *panel = (float *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride);
    const int64_t panels = ln_ceil_div(v->n, s->panel);
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item % panels * s->panel, columns = ln_min(s->panel, v->n - first);
        int64_t a_at, b_at, y_at;
        ln_matmul_offsets(v, item / panels, &a_at, &b_at, &y_at);
        unpack_columns(call, s, b->inputs[1], b_at, first, columns, panel);
        const float *a = (const float *)b->inputs[0] + a_at;
        float *y = (float *)b->outputs[0] + y_at;
        for (int64_t c = 0; c < columns;
             c += WEIGHT_COLUMNS) { /* the lines of these columns stay in the nearest cache */
            const float *w = panel + c * s->padded;
            for (int64_t row = 0, rows; row < v->m; row += rows) {
                rows = v->m - row >= WEIGHT_ROWS ? WEIGHT_ROWS : 1;
                float sums[4][WEIGHT_COLUMNS];
                const float *from = a + row * v->a_row;
                if (rows == WEIGHT_ROWS)
                    weight_tile(WEIGHT_ROWS, from, v->a_row, w, v->k, s->padded, sums);
                else
                    weight_tile(1, from, v->a_row, w, v->k, s->padded, sums);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t i = 0; i < ln_min(WEIGHT_COLUMNS, columns - c); i++) {
                        const int64_t n = first + c + i;
                        y[(row + r) * v->y_row + n] = sums[r][i] + (bias != NULL ? bias[n * s->bias_stride] : 0.0f);
                    }
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_matmul_weights) = {
    .can = ln_weights_can, .configure = ln_weights_configure, .run = weights_run};
