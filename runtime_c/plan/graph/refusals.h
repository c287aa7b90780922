/* refusals.h - steps that a device refuses after it has offered to run them. The program is then built again from the
 * start, and the step is no candidate for that device any more. */
#ifndef LN_REFUSALS_H
#define LN_REFUSALS_H

#include "plan/graph/work.h"

typedef struct ln_refusal {
    struct ln_refusal *next;
    int32_t graph, number; /* numbers of the graph and of the node (ln_work_node.number), which are the same in every
                              build; -1: all nodes */
    uint8_t place;         /* the device */
} ln_refusal;

/* The steps that devices have refused while one program is built. */
typedef struct ln_refusals {
    ln_memory memory;
    ln_pool pool;
    ln_refusal *first;
    int32_t builds; /* builds that ended with a refusal */
    int32_t graphs; /* bodies that this build has opened */
    bool again;     /* the build that has ended met a refusal */
} ln_refusals;

/* Inline, so that a build without devices has none of it. */
static inline void ln_refusals_init(ln_refusals *r, const linnet_allocator *allocator) {
    *r = (ln_refusals){.first = NULL};
    if (!LN_HAS_DEVICES) return;
    ln_memory_init(&r->memory, allocator);
    ln_pool_init(&r->pool, &r->memory);
}

static inline void ln_refusals_free(ln_refusals *r) {
    if (LN_HAS_DEVICES) ln_pool_free(&r->pool);
}

/* Tells whether to build the program again. A build that met a refusal has failed, but its status is no error. */
static inline bool ln_build_again(ln_refusals *r) {
    const bool again = LN_HAS_DEVICES && r->again;
    r->builds += again;
    r->again = false;
    r->graphs = 0;
    return again;
}

/* Notes that the device refuses n steps of a graph, after their program was built. False without memory. */
bool ln_refuse_steps(ln_refusals *refusals, int32_t graph, const linnet_step *steps, int32_t n, uint8_t place);
/* Notes that the device refuses the node. After many builds, the device gets no nodes at all. Errors: OUT_OF_MEMORY. */
linnet_status ln_refuse(ln_work *w, const ln_work_node *node, uint8_t place);
/* Called at the end of a pass that asks devices. Fails with CANCELLED, which ends the build, if a device has refused a
 * node. */
linnet_status ln_end_if_refused(const ln_work *w);
bool ln_is_refused(const ln_work *w, const ln_work_node *node, uint8_t place);

#endif
