/* copy_rectangles.c - the parts of the fast runner of copy that need no SIMD: memcpy runs, typed strided loops, and the
 * walk over rectangles. Transposes by tiles in registers are in fast/tail/copy.inc.c, per ISA level. */
#include "ops/copy_rectangles.h"

#include "ops/copy.h"
#include "ops/copy_plan.h"

#include <string.h>

/* ---- one row of a rectangle ---- */

/* Copies n elements; strides are in elements. */
static void strided(const char *s, int64_t ss, char *t, int64_t ts, int64_t n, size_t size) {
#define LN_STRIDED(type)                                                                                               \
    {                                                                                                                  \
        const type *from = (const type *)(const void *)s;                                                              \
        type *to = (type *)(void *)t;                                                                                  \
        if (ss == 0 && ts == 1) {                                                                                      \
            type v = *from;                                                                                            \
            for (int64_t i = 0; i < n; i++) to[i] = v;                                                                 \
        } else if (ts == 1) {                                                                                          \
            for (int64_t i = 0; i < n; i++) to[i] = from[i * ss];                                                      \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) to[i * ts] = from[i * ss];                                                 \
        }                                                                                                              \
        break;                                                                                                         \
    }
    switch (size) {
    case 1: LN_STRIDED(uint8_t)
    case 2: LN_STRIDED(uint16_t)
    case 4: LN_STRIDED(uint32_t)
    default: LN_STRIDED(uint64_t)
    }
#undef LN_STRIDED
}

/* Copies lines along the longer side, in pieces that stay in the cache until all lines of the other side are copied. */
void ln_copy_corner(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows, int64_t columns,
                    size_t size) {
    enum { PIECE = 512 };
    const int64_t width = (int64_t)size;
    if (rows < columns) { /* the same with rows and columns exchanged: t[p][q] = s[q][p], one line of t at a time */
        for (int64_t q = 0; q < columns; q += PIECE)
            for (int64_t p = 0; p < rows; p++)
                strided(s + q * s_stride + p * width, s_stride / width, t + p * t_stride + q * width, 1,
                        ln_min(PIECE, columns - q), size);
        return;
    }
    for (int64_t p = 0; p < rows; p += PIECE)
        for (int64_t q = 0; q < columns; q++)
            strided(s + q * s_stride + p * width, 1, t + p * t_stride + q * width, t_stride / width,
                    ln_min(PIECE, rows - p), size);
}

static void copy_runs(char *t, int64_t t_step, const char *s, int64_t s_step, int64_t bytes, int64_t n) {
    for (; n > 0; n--, t += t_step, s += s_step) memcpy(t, s, (size_t)bytes);
}

static void run_rectangle(const ln_copy_plan *plan, const ln_copy_rectangle *r, const char *source, char *target,
                          int64_t begin, int64_t end, ln_copy_transpose transpose) {
    int inner = r->shape == LN_COPY_TRANSPOSE ? 2 : 1, cut = r->rank - inner, last = r->rank - 1;
    int64_t size = plan->size, at[LN_COPY_MAX_DIMS] = {0}, rest = begin / r->panels, panel = begin % r->panels;
    int64_t from = r->source, to = r->target;
    for (int d = cut - 1; d >= 0; d--) {
        at[d] = rest % r->dims[d].size;
        rest /= r->dims[d].size;
        from += at[d] * r->dims[d].source;
        to += at[d] * r->dims[d].target;
    }
    const bool rows = r->shape == LN_COPY_RUN && r->panels == 1 && cut > 0;
    for (int64_t item = begin; item < end; item++) {
        if (rows) { /* all runs along the innermost of the outer dims but the last are copied together */
            const ln_copy_dim *d = &r->dims[cut - 1];
            const int64_t n = ln_min(d->size - at[cut - 1], end - item) - 1;
            copy_runs(target + to * size, d->target * size, source + from * size, d->source * size,
                      r->dims[cut].size * size, n);
            item += n, at[cut - 1] += n, from += n * d->source, to += n * d->target;
        }
        int64_t first = panel * r->panel, n = ln_min(r->panel, r->dims[cut].size - first);
        const char *s = source + (from + first * r->dims[cut].source) * size;
        char *t = target + (to + first * r->dims[cut].target) * size;
        if (r->shape == LN_COPY_RUN)
            memcpy(t, s, (size_t)(n * size));
        else if (r->shape == LN_COPY_TRANSPOSE)
            transpose(s, r->dims[last].source * size, t, r->dims[cut].target * size, n, r->dims[last].size,
                      (size_t)size);
        else
            strided(s, r->dims[last].source, t, r->dims[last].target, n, (size_t)size);
        if (++panel < r->panels) continue;
        panel = 0;
        for (int d = cut - 1; d >= 0; d--) {
            from += r->dims[d].source;
            to += r->dims[d].target;
            if (++at[d] < r->dims[d].size) break;
            from -= r->dims[d].size * r->dims[d].source;
            to -= r->dims[d].size * r->dims[d].target;
            at[d] = 0;
        }
    }
}

void ln_copy_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, ln_copy_transpose transpose) {
    const ln_copy_plan *plan = call->state;
    if (plan->flat) {
        ln_copy_flat(call, b, begin, end);
        return;
    }
    for (int64_t i = 0; i < plan->count; i++) {
        const ln_copy_rectangle *r = &plan->rectangles[i];
        int64_t from = ln_max(begin, r->first_item), to = ln_min(end, r->first_item + r->items);
        if (from >= to || !b->outputs[r->output]) continue;
        const void *source = r->input >= 0            ? b->inputs[r->input]
                             : plan->value_input >= 0 ? b->inputs[plan->value_input]
                                                      : plan->value;
        run_rectangle(plan, r, source, b->outputs[r->output], from - r->first_item, to - r->first_item, transpose);
    }
}
