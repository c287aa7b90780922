/* frame.c - with `reference` 2, the buffers have the offsets that they have in the plan for the largest shapes, so that
 * a smaller shape never needs more memory. */
#include "plan/passes/passes.h"

#include <string.h>

/* The first program, for the largest shapes, stores its offsets in the frame. Later programs take their offsets from
 * the frame. Without a frame, the pass does nothing. */
linnet_status ln_pass_frame(ln_work *w) {
    ln_frame *f = w->request.frame;
    if (f == NULL) return LINNET_OK;
    const int32_t n = w->buffers.count;
    if (f->buffers == NULL) {
        ln_work_buffer *buffers = ln_pool_array(&f->pool, n, sizeof *buffers);
        if (buffers == NULL || f->lost) return ln_work_no_memory(w);
        if (n > 0) memcpy(buffers, w->buffers.items, (size_t)n * sizeof *buffers);
        f->buffers = buffers;
        f->count = n;
        f->arena = w->result.needs->arena;
        return LINNET_OK;
    }
    bool same = n == f->count;
    for (int32_t i = 0; same && i < n; ++i) {
        ln_work_buffer *b = ln_buffer_at(w, i);
        const ln_work_buffer *in = &f->buffers[i];
        same = b->kind == in->kind && b->device == in->device && b->chunk == in->chunk && b->first == in->first &&
               b->last == in->last && b->size <= in->size;
        if (b->kind == LN_REGION_ARENA && ln_on_cpu(b->device)) b->offset = in->offset;
    }
    w->result.needs->arena = f->arena;
    if (same) return LINNET_OK;
    ln_fail(w->error, LINNET_TOO_LARGE, "a value is larger at these shapes than at the bounds, or the graph differs");
    return ln_hint(w->error, "linnet_plan_config.reference = 2 requires a graph whose sizes only grow with its inputs");
}
