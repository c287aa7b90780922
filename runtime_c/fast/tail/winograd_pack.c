/* winograd_pack.c - transforms the weights of a planned 3 x 3 convolution, and packs them as panels for its products.
 * The points of tiles of 4 are 0, +-sqrt(2), +-sqrt(1/2) and infinity. They round less than the usual 0, +-1, +-2. */
#include "fast/tail/winograd.h"

#include <string.h>

enum { SIDE = LN_WINOGRAD_MOST + 2 };

/* What three taps become for the points: G times the taps. */
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

/* The weights from one input channel to one output channel, transformed along both axes: out[product * step]. */
static void transform_filter(int64_t tile, const float *w, const ln_window_strides *s, int64_t step, char *out) {
    double column[3][SIDE], row[SIDE];
    for (int x = 0; x < 3; x++, w += s->s[2])
        transform_taps(tile, (double)w[0], (double)w[s->s[1]], (double)w[2 * s->s[1]], column[x]);
    for (int i = 0; i < tile + 2; i++) {
        transform_taps(tile, column[0][i], column[1][i], column[2][i], row);
        for (int j = 0; j < tile + 2; j++, out += step) *(float *)(void *)out = (float)row[j];
    }
}

void ln_winograd_pack(const ln_call *call, void *packed) {
    const ln_winograd *p = call->state;
    const ln_window *g = &p->window;
    const ln_tensor *w = &call->inputs[1], *b = &call->inputs[2];
    const ln_window_strides s = ln_window_strides_of(w, 1);
    memset(packed, 0, call->packed_bytes);
    for (int64_t panel = 0; panel < p->panels; panel++) {
        const int64_t first = panel * p->set->width, width = ln_gemm_width(p->set, g->out_channels - first);
        char *out = (char *)packed + panel * p->panel_bytes;
        for (int64_t k = 0; k < g->in_channels; k++, out += width * (int64_t)sizeof(float))
            for (int64_t n = 0; n < ln_min(width, g->out_channels - first); n++)
                transform_filter(p->tile, (const float *)w->data + (first + n) * s.n + k * s.c, &s, p->matrix_bytes,
                                 out + n * (int64_t)sizeof(float));
    }
    float *bias = (float *)(void *)((char *)packed + p->bias);
    if (call->n_inputs > 2 && b->dtype != LINNET_NONE)
        for (int64_t n = 0; n < g->out_channels; n++) bias[n] = ((const float *)b->data)[n * b->strides[0]];
}
