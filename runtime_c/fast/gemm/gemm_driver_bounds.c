/* gemm_driver_bounds.c - what constant weights prove about the sums of 16-bit activations: whether 32 bits hold them,
 * for how many products, and whether weights of 16 bits must be multiplied in two parts. */
#include "fast/gemm/gemm_driver_bounds.h"

#include "base/layout.h"
#include "fast/gemm/gemm_driver_fold.h"

enum { MOST_MAGNITUDE = 65535 }; /* of the weights of a 32-bit sum: 32768 times as much is less than 2^31 */

/* |v| without a branch, because the signs of weights are unpredictable. */
static int64_t magnitude(int64_t v) { return (v ^ v >> 63) - (v >> 63); }

/* Returns the largest of n weights of 16 bits. */
static int64_t largest(const ln_tensor *w) {
    const int16_t *v = w->data;
    int least = 0, most = 0;
    for (int64_t i = ln_count(w); i > 0; i--, v++) least = *v < least ? *v : least, most = *v > most ? *v : most;
    return ln_max(most, -least);
}

int ln_gemm_parts(const ln_tensor *w, int panel_dtype) {
    if (w->dtype != LINNET_I16) return 1;
    const bool whole = panel_dtype == LINNET_I16 && w->data != NULL && ln_packable(w) && ln_is_dense(w);
    return whole && largest(w) <= MOST_MAGNITUDE / LN_GEMM_BOUNDED ? 1 : 2;
}

bool ln_gemm_beyond_parts(const ln_tensor *w) {
    if (w->data == NULL) return true;
    for (int64_t i = 0; i < ln_count(w); i++)
        if (ln_load_i64(w->data, LINNET_I16, i) > 256 * 127 + 127) return true;
    return false;
}

/* Returns the sum of the magnitudes of n weights, or of one part of each, that are `step` apart. */
static int64_t run_magnitude(const ln_gemm *g, const void *from, int64_t at, int64_t n, int part) {
    const int64_t step = g->b.c;
    int64_t sum = 0;
    if (at < 0) return n * magnitude(g->b.zero);
    if (g->b.dtype == LINNET_I8) {
        const int8_t *v = (const int8_t *)from + at;
        for (; n > 0; n--, v += step) sum += magnitude(*v);
    } else if (g->b.dtype == LINNET_U8) {
        const uint8_t *v = (const uint8_t *)from + at;
        for (; n > 0; n--, v += step) sum += *v;
    } else {
        const int16_t *v = (const int16_t *)from + at;
        for (; n > 0; n--, v += step) sum += magnitude(g->b.parts == 1 ? *v : ln_part_of(*v, part));
    }
    return sum;
}

/* Returns the sum of the magnitudes of column n, or of one part of it. */
static int64_t column_magnitude(const ln_gemm *g, const void *from, int64_t n, int part) {
    int64_t sum = 0;
    for (int64_t tap = 0; tap < g->k.taps; tap++) sum += run_magnitude(g, from, ln_gemm_at(g, n, tap), g->k.kc, part);
    return sum;
}

static const void *matrix_of(const ln_gemm *g, const ln_tensor *w, int64_t matrix) {
    return (const char *)w->data + g->b.matrix_offset[matrix] * (int64_t)ln_dtype_size(w->dtype);
}

bool ln_gemm_fits_narrow(const ln_call *call, const ln_gemm *g, const ln_tensor *w) {
    const ln_tensor *bias = g->init.operand < 0 ? NULL : &call->inputs[g->init.operand];
    const ln_requant *r = &g->c.requant;
    const bool by_float = r->mode == LN_REQUANT_FLOAT_RNE || r->output_dtype == LINNET_F32 || g->b.parts == 2;
    if (g->set->narrow == NULL || !by_float || w->data == NULL || (bias != NULL && bias->data == NULL) ||
        r->x_zero != 0 || (g->b.parts == 2 && g->b.zero != 0))
        return false;
    for (int64_t matrix = 0; matrix < g->n_matrices; matrix++)
        for (int64_t n = 0; n < g->n; n++) {
            const int64_t bias_at = matrix * g->init.matrix + ln_gemm_channel(g, n) * g->init.n;
            const int64_t added = bias == NULL ? 0 : ln_load_i64(bias->data, g->init.dtype, bias_at);
            for (int part = 0; part < g->b.parts; part++) {
                const int64_t start = g->b.parts == 1 ? added : ln_part_of(added, part);
                if (start > INT32_MAX || start < -INT32_MAX ||
                    column_magnitude(g, matrix_of(g, w, matrix), n, part) * 32768 + magnitude(start) > INT32_MAX)
                    return false;
            }
        }
    return true;
}

/* Returns the largest sum of magnitudes of LN_GEMM_BOUNDED weights of column n that lie together in a panel. */
static int64_t largest_block(const ln_gemm *g, const void *from, int64_t n) {
    int64_t most = 0, sum = 0, left = LN_GEMM_BOUNDED;
    for (int64_t tap = 0; tap < g->k.taps; tap++) {
        const int64_t at = ln_gemm_at(g, n, tap);
        if (tap % g->k.run == 0) sum = 0, left = LN_GEMM_BOUNDED;
        for (int64_t c = 0, count; c < g->k.kc; c += count) {
            count = ln_min(left, g->k.kc - c);
            sum += run_magnitude(g, from, at < 0 ? at : at + c * g->b.c, count, 0);
            most = ln_max(most, sum);
            left -= count;
            if (left == 0) sum = 0, left = LN_GEMM_BOUNDED;
        }
    }
    return most;
}

int64_t ln_gemm_bounded(const ln_gemm *g, const ln_tensor *w) {
    int64_t most = w->dtype == LINNET_U8 ? 255 * LN_GEMM_BOUNDED : 128 * LN_GEMM_BOUNDED;
    if (w->dtype == LINNET_I16 && g->b.parts == 1) {
        most = 1;
        for (int64_t matrix = 0; matrix < g->n_matrices; matrix++)
            for (int64_t n = 0; n < g->n; n++) most = ln_max(most, largest_block(g, matrix_of(g, w, matrix), n));
    }
    return MOST_MAGNITUDE / most;
}

bool ln_gemm_fits_double(const ln_call *call, const ln_gemm *g) {
    enum { MOST_K = 1 << 20 };
    const int64_t most = (int64_t)1 << 51; /* the products of 2^20 k are at most as large */
    const ln_tensor *bias = g->init.operand < 0 ? NULL : &call->inputs[g->init.operand];
    if (g->k.taps * g->k.kc > MOST_K) return false;
    if (bias == NULL || bias->dtype == LINNET_I32) return true;
    for (int64_t i = 0; i < ln_count(bias); i++) {
        if (bias->data == NULL || !ln_is_dense(bias)) return false;
        if (ln_load_i64(bias->data, bias->dtype, i) > most || ln_load_i64(bias->data, bias->dtype, i) < -most)
            return false;
    }
    return true;
}
