/* budget.h - what planning may take: memory and work, over all calls, branches and iterations of one plan together.
 * A file of two thousand bytes can describe gigabytes of constants and millions of nodes. */
#ifndef LN_BUDGET_H
#define LN_BUDGET_H

#include "core/graph.h"

/* Beyond `most_*` a value is not folded but left to the run; beyond most_nodes and most_bytes planning is refused. */
typedef struct ln_budget {
    uint64_t folded, most_folded; /* bytes of folded values that are held */
    uint64_t work, most_work;     /* bytes that folding has read and written, or operations where those are more */
    uint64_t nodes, most_nodes;   /* nodes and values looked at; those of calls and iterations count each time */
    uint64_t most_bytes;          /* that planning may hold besides the model; 0: as many as there are */
    uint64_t tried;               /* nodes of loops that were run through in vain, to see whether they are constants */
    uint64_t trial;               /* while one is: the number of nodes at which it is given up; else 0 */
} ln_budget;

void ln_budget_init(ln_budget *b, const linnet_model *model, uint64_t max_bytes);

#endif
