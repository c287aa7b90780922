/* plan.h - the plan object: a program for the first segment, and the data for planning later segments.
 * Immutable once created, except for packed weights, which the first session fills. */
#ifndef LN_PLAN_H
#define LN_PLAN_H

#include "plan/compile/pipeline.h"
#include "plan/graph/tuning.h"

typedef struct ln_plan_output {
    const char *name;
    ln_tensor tensor; /* a dim is -1 where it depends on data */
} ln_plan_output;

struct linnet_plan {
    ln_references references;
    ln_memory memory;
    ln_pool pool;
    linnet_model *model;
    const ln_signature *signature;
    ln_program program;
    ln_device *devices;
    linnet_placement *hints; /* copies of those in the config */
    int32_t n_hints;
    struct ln_task *tasks; /* the config's cluster */
    int32_t n_tasks;
    int32_t n_devices, n_outputs;
    ln_plan_output *outputs;
    int threads;
    ln_features features;
    bool reference, separate, whole_branches, reads_variables, writes_variables;
    bool forked, apart; /* forked: steps run side by side; apart: they do not, because max_bytes has no room for that */
    bool unpacked;      /* variables are packed in each run, because max_bytes has no room for copies */
    bool *read_only;    /* [variable]: no run changes it, so kernels may pack it; NULL: no variable is packed */
    bool *snapshot;     /* [variable]: whether the session's snapshot contains it; NULL: there is no snapshot */
    const ln_tuning *tuning; /* NULL: none */
    const struct ln_machine *machine;
    ln_pass_change *changes; /* [pass]: what it changed; NULL: the caller does not ask */
    uint64_t max_bytes;
    const linnet_plan_config *config; /* a copy, with which a session can make the plan again; NULL without devices */
    struct ln_refusals *refusals; /* while the plan is made: the steps that devices refused in sessions; may be NULL */
    linnet_plan_info info;
};

#endif
