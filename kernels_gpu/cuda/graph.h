/* graph.h - submits claims. The context is current. */
#ifndef LG_CUDA_GRAPH_H
#define LG_CUDA_GRAPH_H

#include "kernels_gpu/cuda/backend.h"

int lg_submit(lg_device *device, lg_queue *queue, lg_state *state); /* now or later */
int lg_flush(lg_device *device, lg_queue *queue);                   /* now, all that is pending */
int lg_launch_all(lg_device *device, lg_queue *queue, const lg_state *state);
/* Those of a claim, or all if it is NULL. If the context is not `current`, the driver keeps what it has of them. */
void lg_forget_graphs(lg_device *device, lg_queue *queue, const lg_state *state, bool current);

#endif
