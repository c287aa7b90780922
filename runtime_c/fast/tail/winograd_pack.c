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

/* Transforms the weights from one input channel to one output channel along both axes, to out[product * step]. */
static void transform_filter(const ln_winograd *p, const float *w, char *out) {
    double column[3][SIDE], row[SIDE];
    for (int x = 0; x < 3; x++, w += p->w_tap)
        transform_taps(p->tile, (double)w[0], (double)w[p->w_line], (double)w[2 * p->w_line], column[x]);
    for (int i = 0; i < p->tile + 2; i++) {
        transform_taps(p->tile, column[0][i], column[1][i], column[2][i], row);
        for (int j = 0; j < p->tile + 2; j++, out += p->matrix_bytes) *(float *)(void *)out = (float)row[j];
    }
}

void ln_winograd_pack(const ln_call *call, void *packed) {
    const ln_winograd *p = call->state;
    if (p->packs) return;
    memset(packed, 0, call->packed_bytes);
    for (int64_t i = 0; i < p->window.group * p->panels; i++) {
        const int64_t group = i / p->panels, panel = i % p->panels;
        const int64_t first = panel * p->set->width, width = ln_gemm_width(p->set, p->out - first);
        const float *w = (const float *)call->inputs[1].data + p->w_first + group * p->w_group + first * p->w_out;
        char *out = (char *)packed + ln_winograd_panel(p, group, panel);
        for (int64_t k = 0; k < p->in; k++, w += p->w_in, out += width * (int64_t)sizeof(float))
            for (int64_t n = 0; n < ln_min(width, p->out - first); n++)
                transform_filter(p, w + n * p->w_out, out + n * (int64_t)sizeof(float));
    }
    ln_winograd_pack_bias(call, call->n_inputs > 2 ? call->inputs[2].data : NULL, packed);
}

void ln_winograd_pack_bias(const ln_call *call, const void *bias, void *packed) {
    const ln_winograd *p = call->state;
    float *to = (float *)(void *)((char *)packed + p->bias);
    for (int64_t n = 0; n < p->window.out_channels; n++)
        to[n] = bias == NULL ? 0 : ((const float *)bias)[n * call->inputs[2].strides[0]];
}
