/* winograd_pack.c - transforms the weights of a planned 3 x 3 convolution, and packs them as panels for its products.
 * The points of tiles of 4 are 0, +-sqrt(2), +-sqrt(1/2) and infinity. They round less than the usual 0, +-1, +-2. */
#include "fast/tail/winograd_pack.h"

#include "fast/tail/winograd.h"

#include <string.h>

enum { SIDE = LN_WINOGRAD_MOST + 2 };

/* Transforms three taps along one axis: G times the taps, where G is Winograd's matrix for the points. */
static inline void transform_taps(int64_t tile, double a, double b, double c, double out[SIDE]) {
    if (tile == 2) {
        out[0] = a, out[1] = 0.5 * (a + b + c), out[2] = 0.5 * (a - b + c), out[3] = c;
        return;
    }
    const double third = 1.0 / 3, root = 1.4142135623730951;
    const double outer = (a + c + c) * (third / 2), inner = b * (root * third / 2);
    const double outer_q = (a + a + c) * third, inner_q = b * (root * third);
    out[0] = a;
    out[1] = outer + inner, out[2] = outer - inner;
    out[3] = -outer_q - inner_q, out[4] = inner_q - outer_q;
    out[5] = c;
}

/* Returns an element of f32 or f16. */
static inline double element(const void *data, int dtype, int64_t at) {
    return (double)(dtype == LINNET_F32 ? ((const float *)data)[at] : ln_f16_to_f32(((const uint16_t *)data)[at]));
}

/* Stores a weight in `bytes` bytes: 4 for f32, and 2 for f16, which only ARM has. */
static inline void store(char *out, int64_t bytes, double value) {
#if defined(__aarch64__)
    if (bytes == 2) {
        const __fp16 rounded = (__fp16)value; /* one instruction, which every core has */
        memcpy(out, &rounded, sizeof rounded);
        return;
    }
#endif
    (void)bytes;
    *(float *)(void *)out = (float)value;
}

/* Transforms the weights from one input channel to one output channel along both axes, one for each product. The
 * weights begin at element `at` of w. */
static void transform_filter(const ln_winograd *p, const ln_tensor *w, int64_t at, char *out) {
    double column[3][SIDE], row[SIDE];
    for (int x = 0; x < 3; x++, at += p->w_tap)
        transform_taps(p->tile, element(w->data, w->dtype, at), element(w->data, w->dtype, at + p->w_line),
                       element(w->data, w->dtype, at + 2 * p->w_line), column[x]);
    for (int i = 0; i < p->tile + 2; i++) {
        transform_taps(p->tile, column[0][i], column[1][i], column[2][i], row);
        for (int j = 0; j < p->tile + 2; j++, out += p->matrix_bytes) store(out, p->weight_bytes, row[j]);
    }
}

void ln_winograd_pack(const ln_call *call, void *packed) {
    const ln_winograd *p = call->state;
    if (p->packs) return;
    memset(packed, 0, call->packed_bytes);
    for (int64_t i = 0; i < p->window.group * p->panels; i++) {
        const int64_t group = i / p->panels, panel = i % p->panels;
        const int64_t first = panel * p->set->width, width = ln_gemm_width(p->set, p->out - first);
        int64_t at = p->w_first + group * p->w_group + first * p->w_out;
        char *out = (char *)packed + ln_winograd_panel(p, group, panel);
        for (int64_t k = 0; k < p->in; k++, at += p->w_in, out += width * p->weight_bytes)
            for (int64_t n = 0; n < ln_min(width, p->out - first); n++)
                transform_filter(p, &call->inputs[1], at + n * p->w_out, out + n * p->weight_bytes);
    }
    ln_winograd_pack_bias(call, call->n_inputs > 2 ? call->inputs[2].data : NULL, packed);
}

void ln_winograd_pack_bias(const ln_call *call, const void *bias, void *packed) {
    const ln_winograd *p = call->state;
    float *to = (float *)(void *)((char *)packed + p->bias);
    for (int64_t n = 0; n < p->window.out_channels; n++)
        to[n] = bias == NULL ? 0 : (float)element(bias, call->inputs[2].dtype, n * call->inputs[2].strides[0]);
}
