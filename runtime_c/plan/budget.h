/* budget.h - limits on the memory and work of planning, over all calls, branches and iterations of one plan together.
 * They are needed because a file of two thousand bytes can describe gigabytes of constants and millions of nodes. */
#ifndef LN_BUDGET_H
#define LN_BUDGET_H

#include "model/graph.h"

/* Beyond most_folded or most_work a value is not folded but computed by the run. Beyond most_nodes or most_bytes
 * planning fails. */
typedef struct ln_budget {
    uint64_t folded, most_folded; /* bytes of folded values that are held */
    uint64_t work, most_work;     /* bytes that folding has read and written, or its operations if their number is
                                     larger */
    uint64_t nodes, most_nodes;   /* nodes and values visited; in calls and iterations they count each time */
    uint64_t most_bytes;          /* limit of the memory that planning holds besides the model; 0: none */
    uint64_t tried; /* nodes of loops that were evaluated to find out whether the loops are constant, but were not */
    uint64_t trial; /* during such an attempt: the number of nodes at which it stops; else 0 */
} ln_budget;

void ln_budget_init(ln_budget *b, const linnet_model *model, uint64_t max_bytes);

#endif
