/* budget.h - limits on the memory and work of planning, over all calls, branches and iterations of one plan together.
 * They are needed because a file of two thousand bytes can describe gigabytes of constants and millions of nodes. */
#ifndef LN_BUDGET_H
#define LN_BUDGET_H

#include "model/graph.h"

/* If folding a value would exceed most_folded, most_work or most_heavy, the run computes the value. If planning exceeds
 * most_nodes or the limit of memory, it fails. */
typedef struct ln_budget {
    uint64_t folded, most_folded; /* bytes of folded values in memory, and their limit */
    uint64_t work, most_work;     /* bytes that folding has read and written, or its operations if their number is
                                     larger */
    uint64_t heavy, most_heavy;   /* of `folded`, the bytes of large results of products and the like (fold.c) */
    /* Nodes and values visited; those of a function count again for each call and iteration. */
    uint64_t nodes, most_nodes;
    ln_memory_limit memory; /* limit of the memory of planning, which does not include the model */
    uint64_t tried;         /* nodes of loops that were evaluated in the hope of a constant result, but had none */
    uint64_t trial;         /* during such an evaluation: the value of `nodes` at which it stops; else 0 */
} ln_budget;

/* The limit counts the memory that planning allocates through both allocators; `kept` is for the parts that the program
 * keeps. max_bytes 0: no limit. */
void ln_budget_init(ln_budget *b, const linnet_model *model, uint64_t max_bytes, ln_memory *temporary, ln_memory *kept);
/* Ends the limit of `kept`. Returns the status of planning, or TOO_LARGE if planning failed because of the limit. */
linnet_status ln_budget_end(const ln_budget *b, ln_memory *kept, linnet_status status, linnet_error *error);
/* Fails with TOO_LARGE when `bytes` exceeds the bound of a plan; a bound of 0 means no bound. */
linnet_status ln_check_bound(uint64_t bound, uint64_t bytes, linnet_error *error);

#endif
