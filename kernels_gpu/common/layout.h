/* layout.h - the layout LG_CHANNELS_LAST, which values may have between two steps of the device. */
#ifndef LG_LAYOUT_H
#define LG_LAYOUT_H

#include "kernels_gpu/common/gpu.h"

/* Returns the axis at place k of the order in memory; place 0 is the outermost. */
int lg_order(const linnet_device_tensor *t, int k);
/* Implement `propose`, `accept` and `describe` of a device: the layout that a step would like to give its output,
 * whether a step accepts this layout for an input, and what a layout is. */
uint32_t lg_propose_layout(const lg_step *s, int output);
bool lg_accepts_layout(const lg_step *s, int input, uint32_t layout);
bool lg_describe_layout(uint32_t layout, int rank, linnet_layout *out);

#endif
