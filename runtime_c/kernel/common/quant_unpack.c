/* quant_unpack.c - the real numbers of consecutive elements of a quantized tensor, for every scheme.
 * Kernels that read narrow weights unpack a few rows at a time, so that the weights are never all dequantized at once.
 */
#include "kernel/common/quant_unpack.h"

/* Returns the number of the first scale of a line of the last dimension. Scales are row-major over the blocks of all
 * dimensions. */
static int64_t first_scale(const ln_tensor *t, int64_t line) {
    const ln_quant *q = t->quant;
    int64_t at = 0, weight = 1;
    if (q->scheme == LN_QUANT_TENSOR) return 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        const bool along = d == q->axis;
        int64_t size = t->dims[d], c = 0;
        if (d < t->rank - 1) c = line % size, line /= size;
        if (q->scheme == LN_QUANT_AXIS) {
            if (along) at = c;
            continue;
        }
        at += (along ? c / q->block : c) * weight;
        weight *= along ? ln_ceil_div(size, q->block) : size;
    }
    return at;
}

float ln_quant_line_scale(const ln_tensor *t, int64_t line) { return t->quant->scale[first_scale(t, line)]; }

/* Unpacks n elements that share one scale. Elements of 4 bits are looked up in a table of their 16 values. */
static void unpack_run(int dtype, const void *data, int64_t first, int64_t n, float scale, int32_t zero, float *out) {
    float values[16];
    const uint8_t *bytes = data;
    if (ln_dtype_bits(dtype) == 4 && n >= 16) {
        for (int i = 0; i < 16; i++) values[i] = (float)((dtype == LINNET_I4 ? (i ^ 8) - 8 : i) - zero) * scale;
        int64_t i = 0;
        if (first % 2) *out++ = values[bytes[first / 2] >> 4], i = 1, first++;
        for (bytes += first / 2; i + 2 <= n; i += 2, bytes++, out += 2)
            out[0] = values[*bytes & 15], out[1] = values[*bytes >> 4];
        if (i < n) *out = values[*bytes & 15];
    } else if (dtype == LINNET_I8) {
        for (int64_t i = 0; i < n; i++) out[i] = (float)(((const int8_t *)data)[first + i] - zero) * scale;
    } else if (dtype == LINNET_I16) {
        for (int64_t i = 0; i < n; i++) out[i] = (float)(((const int16_t *)data)[first + i] - zero) * scale;
    } else {
        for (int64_t i = 0; i < n; i++) out[i] = (float)(ln_load_i64(data, dtype, first + i) - zero) * scale;
    }
}

void ln_quant_unpack(const ln_tensor *t, const void *data, int64_t first, int64_t n, float *out) {
    const ln_quant *q = t->quant;
    const int64_t length = t->rank > 0 ? t->dims[t->rank - 1] : 1;
    const bool last = q->axis == t->rank - 1;
    /* Whether each element has a scale of its own. */
    const bool each = q->scheme == LN_QUANT_AXIS ? last : q->scheme == LN_QUANT_BLOCK && !last;
    const bool blocks = q->scheme == LN_QUANT_BLOCK && last;
    while (n > 0) {
        const int64_t column = first % length, line = ln_min(n, length - column);
        int64_t at = first_scale(t, first / length);
        for (int64_t i = 0, run; i < line; i += run) {
            const int64_t c = column + i, k = at + (each ? c : blocks ? c / q->block : 0);
            run = each ? 1 : blocks ? ln_min(line - i, q->block - c % q->block) : line;
            unpack_run(t->dtype, data, first + i, run, q->scale[k], q->zero ? q->zero[k] : 0, out + i);
        }
        first += line, n -= line, out += line;
    }
}
