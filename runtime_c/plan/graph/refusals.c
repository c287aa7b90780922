/* refusals.c - see refusals.h. Each build asks devices about all of their steps before it ends, so one more build is
 * enough unless a device refuses again what the first refusal has changed. */
#include "plan/graph/refusals.h"

enum { MOST_BUILDS = 8, ALL_NODES = -1 };

bool ln_is_refused(const ln_work *w, const ln_work_node *node, uint8_t place) {
    const ln_refusal *at = w->refusals->first;
    while (at != NULL &&
           (at->place != place || (at->number != ALL_NODES && (at->graph != w->graph || at->number != node->number))))
        at = at->next;
    return at != NULL;
}

linnet_status ln_refuse(ln_work *w, const ln_work_node *node, uint8_t place) {
    ln_refusals *r = w->refusals;
    ln_refusal *made = ln_pool_alloc(&r->pool, sizeof *made);
    r->again = made != NULL; /* without memory the build ends with its error */
    if (made == NULL) return ln_work_no_memory(w);
    *made = (ln_refusal){r->first, w->graph, r->builds < MOST_BUILDS ? node->number : ALL_NODES, place};
    r->first = made;
    return LINNET_OK;
}

linnet_status ln_end_if_refused(const ln_work *w) { return w->refusals->again ? LINNET_CANCELLED : LINNET_OK; }
