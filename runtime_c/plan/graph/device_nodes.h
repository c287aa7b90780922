/* device_nodes.h - nodes as devices see them. */
#ifndef LN_PLAN_GRAPH_DEVICE_NODES_H
#define LN_PLAN_GRAPH_DEVICE_NODES_H

#include "plan/graph/work.h"

/* Describes a node to its device. The call is in `pool`. */
linnet_status ln_device_step_of(ln_work *w, const ln_work_node *node, uint8_t place, ln_pool *pool, linnet_step *out);
/* Returns the modelled nanoseconds of consecutive steps that the device executes as one, as its `offer` and `cost` say;
 * 0 if they do not say it. */
double ln_device_steps_ns(const ln_device *device, const linnet_step *steps, int32_t count,
                          const linnet_step **scratch);
/* Returns the modelled nanoseconds of a transfer of so many bytes to or from the device. */
double ln_transfer_ns(const ln_device *device, uint64_t bytes);
/* Returns the bytes that the value needs at its place, padding included. */
uint64_t ln_device_bytes(const ln_work *w, int32_t value);

#endif
