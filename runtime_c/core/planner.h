/* planner.h - the memory planner: lifetimes in, offsets out. A pure function, used by plans and tested on its own.
 * Offline bin packing as in Pisarchyk and Lee, "Efficient memory management for deep neural net inference" (2020). */
#ifndef LN_PLANNER_H
#define LN_PLANNER_H

#include "core/error.h"
#include "core/memory.h"

/* One buffer, alive from step `first` to step `last`, both included. */
typedef struct ln_lifetime {
    uint64_t size;
    int32_t first, last;
    uint64_t offset; /* result, a multiple of LN_ALIGNMENT */
} ln_lifetime;

typedef struct ln_memory_plan {
    uint64_t reached;     /* bytes of the arena */
    uint64_t lower_bound; /* largest sum of sizes alive at one step */
    uint64_t naive;       /* sum of all sizes */
} ln_memory_plan;

/* Places the buffers so that no two alive at once overlap: greedy by size, by density at the busiest step and by time,
 * the best of which a seeded hill climb over the order improves, bounded by a count of comparisons (never by a clock),
 * until the lower bound is reached. Sizes are rounded up to LN_ALIGNMENT in all three figures. Working memory comes
 * from `temporary` and is given back. Errors: OUT_OF_MEMORY, TOO_LARGE (sizes that overflow). */
linnet_status ln_plan_memory(ln_memory *temporary, ln_lifetime *buffers, int count, ln_memory_plan *out,
                             linnet_error *error);

#endif
