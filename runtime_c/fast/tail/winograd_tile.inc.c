/* winograd_tile.inc.c - the transforms of Winograd's tiles, for f32 and f16. The file that includes this one defines:
 *     WG_VECTOR, WG_LANES: a vector of the numbers that are transformed
 *     WG_ADD WG_SUB WG_MUL(a, factor) WG_FMA(a, factor, c)
 *     WG_READ(halves, x, at): a vector of inputs from number `at` on. They are f32 or, with `halves`, f16
 *     WG_LOAD(from, c) and WG_STORE(to, c, v): transformed numbers from number c on. They begin at a float *, and those
 *         of f16 take half of the memory
 *     WG_F32, WG_F32_ALL(x), WG_F32_LOAD(p): as many numbers of f32
 *     WG_WRITE(halves, y, at, v, add, low, high): stores v + add within limits, as f32 or, with `halves`, as f16 */
#include "fast/tail/winograd.h"

enum { WG_TILE = LN_WINOGRAD_MOST, WG_SIDE = LN_WINOGRAD_MOST + 2 }; /* of the largest tile */

/* ---- transforms of one line ---------------------------------------------------------------------------------------
 */

/* Transforms inputs: B^T times d. For tiles of 2, the points are 0, 1, -1 and infinity; for tiles of 4, they are 0, p,
 * -p, q, -q and infinity, with p^2 = 2 and q^2 = 1/2. */
static LN_ALWAYS_INLINE void wg_in(const int tile, const WG_VECTOR d[], WG_VECTOR r[]) {
    if (tile == 2) {
        r[0] = WG_SUB(d[0], d[2]), r[1] = WG_ADD(d[1], d[2]);
        r[2] = WG_SUB(d[2], d[1]), r[3] = WG_SUB(d[3], d[1]);
        return;
    }
    const float p = 1.41421356f, q = 0.70710678f;
    const WG_VECTOR even_p = WG_FMA(d[2], -0.5f, d[4]), odd_p = WG_FMA(d[1], -0.5f, d[3]);
    const WG_VECTOR even_q = WG_FMA(d[2], -2.0f, d[4]), odd_q = WG_FMA(d[1], -2.0f, d[3]);
    r[0] = WG_FMA(d[2], -2.5f, WG_ADD(d[0], d[4]));
    r[1] = WG_FMA(odd_p, p, even_p), r[2] = WG_FMA(odd_p, -p, even_p);
    r[3] = WG_FMA(odd_q, q, even_q), r[4] = WG_FMA(odd_q, -q, even_q);
    r[5] = WG_FMA(d[3], -2.5f, WG_ADD(d[1], d[5]));
}

/* Transforms products back: A^T times m, for the same points. */
static LN_ALWAYS_INLINE void wg_out(const int tile, const WG_VECTOR m[], WG_VECTOR r[]) {
    if (tile == 2) {
        r[0] = WG_ADD(m[0], WG_ADD(m[1], m[2]));
        r[1] = WG_ADD(m[3], WG_SUB(m[1], m[2]));
        return;
    }
    const float p = 1.41421356f, q = 0.70710678f;
    const WG_VECTOR even_p = WG_ADD(m[1], m[2]), odd_p = WG_SUB(m[1], m[2]);
    const WG_VECTOR even_q = WG_ADD(m[3], m[4]), odd_q = WG_SUB(m[3], m[4]);
    r[0] = WG_ADD(m[0], WG_ADD(even_p, even_q));
    r[1] = WG_FMA(odd_q, q, WG_MUL(odd_p, p));
    r[2] = WG_FMA(even_q, 0.5f, WG_ADD(even_p, even_p));
    r[3] = WG_FMA(odd_q, 0.5f * q, WG_FMA(odd_p, 2 * p, m[5]));
}

/* ---- transforms of a tile ------------------------------------------------------------------------------------------
 */

/* Transforms one tile of inputs to out[product * step]. `line` and `pixel` are the distances of its lines and pixels in
 * elements. The last vector of channels overlaps the vector before. */
static LN_ALWAYS_INLINE void wg_in_tile_of(const int tile, const bool halves, const void *x, int64_t line,
                                           int64_t pixel, int64_t channels, float *out, int64_t step) {
    const int side = tile + 2;
    for (int64_t c = 0; c < channels; c += WG_LANES) {
        if (c + WG_LANES > channels) c = channels - WG_LANES;
        WG_VECTOR lines[WG_SIDE][WG_SIDE], from[WG_SIDE], to[WG_SIDE];
        for (int j = 0; j < side; j++) {
            LN_UNROLL
            for (int i = 0; i < side; i++) from[i] = WG_READ(halves, x, i * line + j * pixel + c);
            wg_in(tile, from, to);
            LN_UNROLL
            for (int i = 0; i < side; i++) lines[i][j] = to[i];
        }
        float *y = out;
        for (int i = 0; i < side; i++, y += side * step) {
            wg_in(tile, lines[i], to);
            LN_UNROLL
            for (int j = 0; j < side; j++) WG_STORE(y + j * step, c, to[j]);
        }
    }
}

static __attribute__((noinline)) void wg_in_tile(const ln_winograd *p, const void *x, int64_t line, int64_t pixel,
                                                 float *out) {
    if (p->tile == 2)
        wg_in_tile_of(2, false, x, line, pixel, p->in, out, p->in_step);
    else
        wg_in_tile_of(4, false, x, line, pixel, p->in, out, p->in_step);
}

/* Transforms the products of one tile back, and adds the bias. */
static LN_ALWAYS_INLINE void wg_out_tile_of(const int tile, const bool halves, const ln_winograd *p, const float *m,
                                            const float *bias, int64_t channels, void *y, int64_t line, int64_t pixel) {
    const int side = tile + 2;
    const WG_F32 low = WG_F32_ALL(p->low), high = WG_F32_ALL(p->high);
    const int64_t step = p->out_step;
    for (int64_t c = 0; c < channels; c += WG_LANES) {
        if (c + WG_LANES > channels) c = channels - WG_LANES;
        WG_VECTOR lines[WG_TILE][WG_SIDE], from[WG_SIDE], to[WG_SIDE];
        for (int j = 0; j < side; j++) {
            const float *in = m + j * step;
            LN_UNROLL
            for (int i = 0; i < side; i++) from[i] = WG_LOAD(in + i * side * step, c);
            wg_out(tile, from, to);
            LN_UNROLL
            for (int i = 0; i < tile; i++) lines[i][j] = to[i];
        }
        const WG_F32 add = WG_F32_LOAD(bias + c);
        for (int i = 0; i < tile; i++) {
            wg_out(tile, lines[i], to);
            LN_UNROLL
            for (int j = 0; j < tile; j++) WG_WRITE(halves, y, i * line + j * pixel + c, to[j], add, low, high);
        }
    }
}

static __attribute__((noinline)) void wg_out_tile(const ln_winograd *p, const float *m, const float *bias,
                                                  int64_t channels, void *y, int64_t line, int64_t pixel) {
    if (p->tile == 2)
        wg_out_tile_of(2, false, p, m, bias, channels, y, line, pixel);
    else
        wg_out_tile_of(4, false, p, m, bias, channels, y, line, pixel);
}
