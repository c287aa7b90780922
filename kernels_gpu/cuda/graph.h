/* graph.h - submits claims to a queue. The caller has made the device's context current (context.h), unless a comment
 * says otherwise. The functions return 0 or a code. */
#ifndef LG_CUDA_GRAPH_H
#define LG_CUDA_GRAPH_H

#include "kernels_gpu/cuda/backend.h"

/* Adds a claim (a step that this device runs) to the queue's pending claims, which lg_flush submits together. If the
 * session measures the times of steps, the claim is submitted at once. */
int lg_submit(lg_device *device, lg_queue *queue, lg_state *state);
/* Submits all claims that are pending. Call this before other work is submitted to the queue and before a wait. */
int lg_flush(lg_device *device, lg_queue *queue);
/* Submits the launches of one claim at once. */
int lg_launch_all(lg_device *device, lg_queue *queue, const lg_state *state);
/* Frees the graphs that contain a claim, or all graphs of the queue if `state` is NULL. Call this before a claim is
 * freed. If the context is not `current`, the driver's part of the graphs cannot be freed and remains. */
void lg_forget_graphs(lg_device *device, lg_queue *queue, const lg_state *state, bool current);

#endif
