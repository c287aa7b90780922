/* pool_gradient.inc.c - the gradient of max and average pooling, with vectors over channels. A work item is some
 * channels of one image and processes its windows one after the other. Compiled per ISA; planning and the reference are
 * in ops/pool_gradient.c. */
#include "ops/pool_gradient.h"

#include "ops/pool.h"
#include "ops/pool_plan.h"

static LN_ALWAYS_INLINE vf pg_load(const bool whole, const float *p, int n) {
    return whole ? vf_load(p) : vf_load_partial(p, n);
}

static LN_ALWAYS_INLINE void pg_store(const bool whole, float *p, int n, vf v) {
    if (whole)
        vf_store(p, v);
    else
        vf_store_partial(p, n, v);
}

/* The taps of one window along each axis: their number, their first position in x and dx, and the steps between
 * them. */
typedef struct pg_spans {
    int64_t n[3], x_at[3], dx_at[3], x[3], dx[3];
} pg_spans;

static inline void pg_axis(const ln_pool_plan *p, pg_spans *s, int axis, int64_t o) {
    const ln_window *w = &p->window;
    int64_t low, high;
    ln_window_valid(w, axis, o, &low, &high);
    const int64_t from = o * w->stride[axis] - w->pad_begin[axis] + low * w->dilation[axis];
    s->n[axis] = high - low;
    s->x_at[axis] = from * p->x.s[axis], s->dx_at[axis] = from * p->dx.s[axis];
    s->x[axis] = w->dilation[axis] * p->x.s[axis], s->dx[axis] = w->dilation[axis] * p->dx.s[axis];
}

/* Processes n channels of one window. */
static LN_ALWAYS_INLINE void pg_window(const bool average, const bool whole, const pg_spans *s, const float *x, vf g,
                                       float *dx, int n) {
    vf best = average ? g : pg_load(whole, x, n);
    vi best_at = vi_zero();
    int32_t tap = 0;
    for (int64_t kz = 0; kz < s->n[0] && !average; kz++)
        for (int64_t ky = 0; ky < s->n[1]; ky++)
            for (int64_t kx = 0; kx < s->n[2]; kx++, tap++) {
                vf v = pg_load(whole, x + kz * s->x[0] + ky * s->x[1] + kx * s->x[2], n);
                vm better = vf_gt(v, best);
                best = vf_select(better, v, best);
                best_at = vi_select(better, vi_set1(tap), best_at);
            }
    tap = 0;
    for (int64_t kz = 0; kz < s->n[0]; kz++)
        for (int64_t ky = 0; ky < s->n[1]; ky++)
            for (int64_t kx = 0; kx < s->n[2]; kx++, tap++) {
                vf part = average ? g : vf_select(vi_eq(best_at, vi_set1(tap)), g, vf_zero());
                float *to = dx + kz * s->dx[0] + ky * s->dx[1] + kx * s->dx[2];
                pg_store(whole, to, n, vf_add(pg_load(whole, to, n), part));
            }
}

/* Processes all channels of one window. The last vector, which has few channels, may also be processed as a full vector
   if it stays inside the image. Only this thread works on the image, and g is 0 in the lanes that belong to the next
   pixel. */
static void pg_position(const ln_pool_plan *p, const pg_spans *s, const float *x, const float *g, int64_t channels,
                        float *dx, int64_t count) {
    if (s->n[0] * s->n[1] * s->n[2] == 0) return;
    const int64_t x_at = s->x_at[0] + s->x_at[1] + s->x_at[2], dx_at = s->dx_at[0] + s->dx_at[1] + s->dx_at[2];
    int64_t x_end = x_at + VF_WIDTH, dx_end = dx_at + VF_WIDTH;
    for (int i = 0; i < 3; i++) x_end += (s->n[i] - 1) * s->x[i], dx_end += (s->n[i] - 1) * s->dx[i];
    for (int64_t c = 0; c < channels; c += VF_WIDTH) {
        const int n = (int)ln_min(VF_WIDTH, channels - c);
        const bool whole = n == VF_WIDTH || (p->chunks == 1 && x_end + c <= p->x_image && dx_end + c <= p->dx_image);
        const vf v = n == VF_WIDTH ? vf_load(g + c) : vf_load_partial(g + c, n);
        const vf share = p->kind == LN_POOL_GRADIENT_KIND_AVERAGE ? vf_div(v, vf_set1((float)ln_max(1, count))) : v;
        if (p->kind == LN_POOL_GRADIENT_KIND_AVERAGE)
            pg_window(true, false, s, x, share, dx + dx_at + c, n);
        else if (whole)
            pg_window(false, true, s, x + x_at + c, v, dx + dx_at + c, n);
        else
            pg_window(false, false, s, x + x_at + c, v, dx + dx_at + c, n);
    }
}

static linnet_status pg_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                            int thread) {
    (void)phase, (void)thread;
    const ln_pool_plan *p = call->state;
    const ln_window *w = &p->window;
    const bool average = p->kind == LN_POOL_GRADIENT_KIND_AVERAGE;
    for (int64_t item = begin; item < end; item++) {
        const int64_t c0 = item % p->chunks * LN_POOL_GRADIENT_CHUNK, image = item / p->chunks;
        const int64_t channels = ln_min(LN_POOL_GRADIENT_CHUNK, p->channels - c0);
        const float *x = (const float *)b->inputs[0] + image * p->x.n + c0,
                    *g = (const float *)b->inputs[1] + image * p->y.n + c0;
        float *dx = (float *)b->outputs[0] + image * p->dx.n + c0;
        for (int64_t z = 0; z < w->in[0]; z++)
            for (int64_t y = 0; y < w->in[1]; y++)
                for (int64_t i = 0; i < w->in[2]; i++) {
                    float *to = dx + z * p->dx.s[0] + y * p->dx.s[1] + i * p->dx.s[2];
                    for (int64_t c = 0; c < channels; c += VF_WIDTH)
                        vf_store_partial(to + c, (int)ln_min(VF_WIDTH, channels - c), vf_zero());
                }
        pg_spans s;
        for (int64_t oz = 0; oz < w->out[0]; oz++) {
            pg_axis(p, &s, 0, oz);
            for (int64_t oy = 0; oy < w->out[1]; oy++) {
                pg_axis(p, &s, 1, oy);
                for (int64_t ox = 0; ox < w->out[2]; ox++) {
                    pg_axis(p, &s, 2, ox);
                    pg_position(p, &s, x, g + oz * p->y.s[0] + oy * p->y.s[1] + ox * p->y.s[2], channels, dx,
                                average ? ln_pool_count(p, oz, oy, ox, s.n[0] * s.n[1] * s.n[2]) : 1);
                }
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_pool_gradient) = {
    .can = ln_pool_gradient_can, .configure = ln_pool_gradient_configure, .run = pg_run};
