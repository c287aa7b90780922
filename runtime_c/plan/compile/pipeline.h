/* pipeline.h - builds a program by its passes: their numbers and names, and what each changed. */
#ifndef LN_PIPELINE_H
#define LN_PIPELINE_H

#include "plan/compile/program.h"

/* Numbers of the passes, in order. */
enum {
#define LN_FACT(name, check, sentence)
#define LN_PASS(name, function, when, needs, gives, ends, sentence) LN_PASS_##name,
#include "plan/compile/passes.inc"
#undef LN_PASS
#undef LN_FACT
    LN_PASSES
};

/* What a pass changed: [0] before it, [1] after it. */
typedef struct ln_pass_change {
    bool ran;
    int32_t nodes[2], values[2];
    int32_t fused[2];       /* number of nodes with an epilogue */
    int32_t added, removed; /* numbers of nodes */
    int32_t moved;          /* number of nodes that now come after a node that they came before */
    uint64_t bytes[2]; /* bytes of the results of all nodes; when there are buffers, of the buffers; when these have
                          offsets, of the memory for all of them */
} ln_pass_change;

const char *ln_pass_name(int pass);

/* Runs the passes (passes.inc) and builds the program. All persistent memory comes from `memory`. On an
 * error the program is freed. */
linnet_status ln_program_build(ln_work *w, ln_memory *memory, ln_program *out);

#endif
