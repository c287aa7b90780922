/* pipeline.h - the numbers and names of the passes, what each changed, and the facts that hold between them.
 */
#ifndef LN_PIPELINE_H
#define LN_PIPELINE_H

#include "plan/build/program.h"

/* Numbers of the passes, in order. */
enum {
#define LN_FACT(name, check, sentence)
#define LN_PASS(name, function, when, needs, gives, ends, sentence) LN_PASS_##name,
#include "plan/build/passes.inc"
#undef LN_PASS
#undef LN_FACT
    LN_PASSES
};

/* What a pass changed: [0] before it, [1] after it. */
typedef struct ln_pass_change {
    bool ran;
    int32_t nodes[2], values[2];
    int32_t fused[2];       /* nodes with an epilogue */
    int32_t added, removed; /* nodes */
    int32_t moved;          /* nodes that come after one that they came before */
    uint64_t bytes[2];      /* of the results of nodes; from the buffers on of buffers, from the offsets on of memory */
} ln_pass_change;

const char *ln_pass_name(int pass);

/* checks.c, in builds with LN_CHECK_PASSES. The facts are bits in the order of passes.inc. Returns the sentence of the
 * first fact that does not hold, and in *node where; NULL: all hold. */
const char *ln_broken_fact(const ln_work *w, uint32_t facts, const char **node);

#endif
