/* planner.h - the memory planner: computes offsets from lifetimes. It is a pure function, which plans use and which is
 * tested on its own. The method is offline bin packing as in Pisarchyk and Lee, "Efficient memory management for deep
 * neural net inference" (2020).
 */
#ifndef LN_PLANNER_H
#define LN_PLANNER_H

#include "base/error.h"
#include "base/memory.h"

/* One buffer, in use from step `first` to step `last`, both included. */
typedef struct ln_lifetime {
    uint64_t size;
    int32_t first, last;
    uint64_t offset; /* set by ln_plan_memory: a multiple of LN_ALIGNMENT */
} ln_lifetime;

typedef struct ln_memory_plan {
    uint64_t reached;     /* bytes of the arena */
    uint64_t lower_bound; /* largest sum of the sizes in use at one step */
    uint64_t naive;       /* sum of all sizes */
} ln_memory_plan;

/* Assigns offsets so that no two buffers overlap if they are in use at the same time. It tries three greedy orders:
 * by size, by density at the busiest step, and by time. A seeded hill climb over the order then improves the best of
 * them until it reaches the lower bound or a maximum count of comparisons (never a clock). All three figures round
 * sizes up to LN_ALIGNMENT. Working memory comes from `temporary` and is freed again. Errors: OUT_OF_MEMORY, TOO_LARGE
 * (sizes that overflow). */
linnet_status ln_plan_memory(ln_memory *temporary, ln_lifetime *buffers, int count, ln_memory_plan *out,
                             linnet_error *error);

#endif
