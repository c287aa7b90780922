/* refusals.c - keeps the list of refused steps. A build asks devices about all of their steps before it ends. So one
 * more build is enough, unless a device also refuses a step that changed because of the first refusals. */
#include "plan/graph/refusals.h"

enum { MOST_BUILDS = 8, ALL_NODES = -1 };

bool ln_is_refused(const ln_work *w, const ln_work_node *node, uint8_t place) {
    const ln_refusal *at = w->offload.refusals->first;
    while (at != NULL && (at->place != place ||
                          (at->number != ALL_NODES && (at->graph != w->offload.graph || at->number != node->number))))
        at = at->next;
    return at != NULL;
}

static bool add(ln_refusals *r, int32_t graph, int32_t number, uint8_t place) {
    ln_refusal *made = ln_pool_alloc(&r->pool, sizeof *made);
    r->again = made != NULL; /* without memory the build ends with its error */
    if (made == NULL) return false;
    *made = (ln_refusal){r->first, graph, r->builds < MOST_BUILDS ? number : ALL_NODES, place};
    r->first = made;
    return true;
}

linnet_status ln_refuse(ln_work *w, const ln_work_node *node, uint8_t place) {
    return add(w->offload.refusals, w->offload.graph, node->number, place) ? LINNET_OK : ln_work_no_memory(w);
}

bool ln_refuse_steps(ln_refusals *r, int32_t graph, const linnet_step *steps, int32_t n, uint8_t place) {
    for (int32_t i = 0; i < n; ++i)
        if (!add(r, graph, steps[i].number, place)) return false;
    return true;
}

linnet_status ln_end_if_refused(const ln_work *w) { return w->offload.refusals->again ? LINNET_CANCELLED : LINNET_OK; }
