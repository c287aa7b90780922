/* layout.h - images with their channels last, as a layout of values between steps of the device. */
#ifndef LG_LAYOUT_H
#define LG_LAYOUT_H

#include "kernels_gpu/common/gpu.h"

/* The axis at place k in memory, from the outermost, 0, on. */
int lg_order(const linnet_device_tensor *t, int k);
/* For `propose`, `accept` and `describe` of a backend. */
uint32_t lg_propose_layout(const lg_step *s, int output);
bool lg_accepts_layout(const lg_step *s, int input, uint32_t layout);
bool lg_describe_layout(uint32_t layout, int rank, linnet_layout *out);

#endif
