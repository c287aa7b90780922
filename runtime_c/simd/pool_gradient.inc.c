/* pool_gradient.inc.c - the gradient of max and average pooling, vectors over channels: an item is some channels of one
 * image, whose windows follow one another. Compiled per ISA; planning and the reference are in ops/pool_gradient.c. */
#include "ops/pool.h"

static inline vf pg_load(const float *p, int n) { return n == VF_WIDTH ? vf_load(p) : vf_load_partial(p, n); }

static inline void pg_add(float *p, int n, vf v) {
    if (n == VF_WIDTH)
        vf_store(p, vf_add(vf_load(p), v));
    else
        vf_store_partial(p, n, vf_add(vf_load_partial(p, n), v));
}

/* The taps of one window: offsets into x and dx. */
typedef struct pg_span {
    int64_t nz, ny, nx, x[3], dx[3];
} pg_span;

/* n channels of one window. */
static LN_ALWAYS_INLINE void pg_window(const bool average, const pg_span *s, const float *x, vf g, float *dx, int n) {
    vf best = average ? g : pg_load(x, n);
    vi best_at = vi_zero();
    int32_t tap = 0;
    for (int64_t kz = 0; kz < s->nz && !average; kz++)
        for (int64_t ky = 0; ky < s->ny; ky++)
            for (int64_t kx = 0; kx < s->nx; kx++, tap++) {
                vf v = pg_load(x + kz * s->x[0] + ky * s->x[1] + kx * s->x[2], n);
                vm better = vf_gt(v, best);
                best = vf_select(better, v, best);
                best_at = vi_select(better, vi_set1(tap), best_at);
            }
    tap = 0;
    for (int64_t kz = 0; kz < s->nz; kz++)
        for (int64_t ky = 0; ky < s->ny; ky++)
            for (int64_t kx = 0; kx < s->nx; kx++, tap++) {
                vf part = average ? g : vf_select(vi_eq(best_at, vi_set1(tap)), g, vf_zero());
                pg_add(dx + kz * s->dx[0] + ky * s->dx[1] + kx * s->dx[2], n, part);
            }
}

static linnet_status pg_run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end,
                            int thread) {
    (void)phase, (void)thread;
    const ln_pool_plan *p = call->state;
    const ln_window *w = &p->window;
    for (int64_t item = begin; item < end; item++) {
        const int64_t c0 = item % p->chunks * LN_POOL_GRADIENT_CHUNK, image = item / p->chunks;
        const int64_t channels = ln_min(LN_POOL_GRADIENT_CHUNK, p->channels - c0);
        const float *x = (const float *)b->inputs[0] + image * p->x.n + c0,
                    *g = (const float *)b->inputs[1] + image * p->y.n + c0;
        float *dx = (float *)b->outputs[0] + image * p->dx.n + c0;
        for (int64_t i = 0; i < w->in[0] * w->in[1] * w->in[2]; i++)
            memset(dx + i / w->in[2] / w->in[1] * p->dx.s[0] + i / w->in[2] % w->in[1] * p->dx.s[1] +
                       i % w->in[2] * p->dx.s[2],
                   0, (size_t)channels * sizeof *dx);
        for (int64_t i = 0; i < ln_window_positions(w); i++) {
            const int64_t o[3] = {i / w->out[2] / w->out[1], i / w->out[2] % w->out[1], i % w->out[2]};
            int64_t low[3], high[3], x_at = 0, dx_at = 0;
            pg_span s;
            for (int d = 0; d < 3; d++) {
                ln_window_valid(w, d, o[d], &low[d], &high[d]);
                const int64_t from = o[d] * w->stride[d] - w->pad_begin[d] + low[d] * w->dilation[d];
                x_at += from * p->x.s[d], dx_at += from * p->dx.s[d];
                s.x[d] = w->dilation[d] * p->x.s[d], s.dx[d] = w->dilation[d] * p->dx.s[d];
            }
            s.nz = high[0] - low[0], s.ny = high[1] - low[1], s.nx = high[2] - low[2];
            const int64_t inside = s.nz * s.ny * s.nx;
            if (inside == 0) continue;
            const vf count = vf_set1((float)ln_max(1, ln_pool_count(p, o[0], o[1], o[2], inside)));
            const float *from = g + o[0] * p->y.s[0] + o[1] * p->y.s[1] + o[2] * p->y.s[2];
            for (int64_t c = 0; c < channels; c += VF_WIDTH) {
                const int n = (int)ln_min(VF_WIDTH, channels - c);
                const vf v = pg_load(from + c, n);
                if (p->kind == LN_POOL_GRADIENT_KIND_AVERAGE)
                    pg_window(true, &s, x, vf_div(v, count), dx + dx_at + c, n);
                else
                    pg_window(false, &s, x + x_at + c, v, dx + dx_at + c, n);
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel LN_SIMD_NAME(ln_pool_gradient) = {.name = "pool_gradient_channels__" LN_SIMD_TEXT,
                                                  .op = LN_OP_POOL_GRADIENT,
                                                  .isa = LN_SIMD_ISA,
                                                  .flags = LN_KERNEL_VIEWS,
                                                  .supports = ln_pool_gradient_supports,
                                                  .configure = ln_pool_gradient_configure,
                                                  .run = pg_run};
