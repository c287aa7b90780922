/* plan.h - the plan object: a program for the first segment, and the data for planning later segments.
 * Immutable once created, except for packed weights, which the first session fills. */
#ifndef LN_PLAN_H
#define LN_PLAN_H

#include "plan/build/pipeline.h"
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
    linnet_placement *hints; /* copies */
    int32_t n_hints;
    int32_t n_devices, n_outputs;
    ln_plan_output *outputs;
    int threads;
    ln_features features;
    bool reference, separate, reads_variables, writes_variables;
    bool forked, apart;      /* steps run side by side; they do not, because max_bytes has no room for that */
    bool unpacked;           /* variables are packed in each run, because max_bytes has no room for copies */
    bool *steady;            /* per variable: no run changes it; NULL: no variable is packed */
    bool *snapshot;          /* per variable: whether the session's snapshot contains it; NULL: there is no snapshot */
    const ln_tuning *tuning; /* NULL: none */
    const struct ln_machine *machine;
    ln_pass_change *changes; /* per pass; NULL: nobody asks */
    uint64_t max_bytes;
    const linnet_plan_config *config; /* a copy, with which a session can make the plan again; NULL without devices */
    struct ln_refusals *refusals;     /* while the plan is made: what devices have refused in sessions; may be NULL */
    linnet_plan_info info;
};

/* config.c: INVALID_ARGUMENT for a value that is out of range. */
linnet_status ln_check_plan_config(const linnet_plan_config *config, linnet_error *error);
/* config.c: copies the config and all that it points to, except the devices and the allocator; NULL without memory. */
const linnet_plan_config *ln_copy_plan_config(ln_pool *pool, const linnet_plan_config *from);
/* Makes the plan again without the steps that devices have refused while a session was created. Errors: those of
 * linnet_plan_create. */
linnet_status ln_plan_again(const linnet_plan *plan, struct ln_refusals *refusals, linnet_plan **out,
                            linnet_error *error);
linnet_plan *ln_plan_retain(linnet_plan *plan);
/* file_import.c: makes the model's file a buffer of the device if the device can read memory of the host, and gives it
 * up. */
void ln_device_take_file(linnet_model *model, ln_device *device);
void ln_device_give_file(linnet_model *model, ln_device *device);
/* plan_devices.c: TOO_LARGE if the plan needs more than `most` bytes on a device; 0: no limit. */
linnet_status ln_check_devices(const linnet_plan *plan, uint64_t most, linnet_error *error);
/* plan_devices.c: logs how many steps, in bodies too, run on the CPU because no device took them. */
void ln_report_fallback(const linnet_plan *plan);
/* candidates.c: logs for how many steps the tuning file names a kernel that cannot run them. */
void ln_report_tuning(const linnet_plan *plan);
void ln_step_describe(const linnet_plan *plan, const ln_step *step, linnet_step_info *info);

#endif
