/* scopes.h - device scopes: which places of a plan fit the device string of a node (schema/linnet.fbs), which place a
 * hint names, and the error for nodes that do not run in such a place. */
#ifndef LN_SCOPES_H
#define LN_SCOPES_H

#include "base/memory.h"
#include "plan/graph/devices.h"

struct ln_work;
struct ln_work_node;

/* A set of places: one bit for each, and bit 0 for the CPU. */
typedef uint64_t ln_places;
#define LN_ANYWHERE UINT64_MAX
static inline bool ln_has_place(ln_places places, uint8_t place) { return places >> place & 1; }

/* A device string, or a part of one. A number of -1 and a NULL text fit anything. */
typedef struct ln_device_spec {
    const char *job, *kind; /* not terminated */
    size_t job_length, kind_length;
    int64_t replica, task, index;
} ln_device_spec;

/* A task of the cluster: a machine, or this one. */
typedef struct ln_task {
    const char *name; /* "/job:worker/task:0" */
    ln_device_spec spec;
    uint8_t place; /* LN_CPU: this machine with its devices */
} ln_task;

/* Copies the cluster of the config into the pool, and finds its devices among n of the plan. Errors: INVALID_ARGUMENT,
 * UNKNOWN_NAME, OUT_OF_MEMORY. */
linnet_status ln_take_cluster(ln_pool *pool, const linnet_plan_config *config, const ln_device *devices, int32_t n,
                              ln_task **tasks, linnet_error *error);
/* Returns the places that fit a scope, which may be NULL. Without a cluster a scope is a hint: what nothing fits fits
 * anywhere. */
ln_places ln_scope_places(const struct ln_work *w, const char *scope);
/* Returns the place that the first matching hint names for the node, and sets *exact to whether the hint has the node's
 * name and is no pattern; -1: no hint names one. */
int32_t ln_hinted_place(const struct ln_work *w, const struct ln_work_node *node, bool *exact);
/* Fails if a cluster is given and a node does not run where its scope places it. `places` has the places of each node,
 * LN_ANYWHERE without a scope. Nodes for which `stays` is set always run on this machine. Errors: UNKNOWN_NAME,
 * UNSUPPORTED. */
linnet_status ln_check_scopes(const struct ln_work *w, const ln_places *places, const bool *stays);

#endif
