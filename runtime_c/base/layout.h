/* layout.h - what a layout is: linnet_layout of linnet_device.h, for the layouts with a name and for those of devices.
 * Kernels work with strides; base/types.h has the questions that they ask. */
#ifndef LN_LAYOUT_H
#define LN_LAYOUT_H

#include "base/types.h"

#include "linnet_device.h"

/* The layout of this name (ln_layout) for tensors of this rank. */
void ln_layout_of(int layout, int rank, linnet_layout *out);
/* The strides and the bytes of a tensor of this dtype, rank and dims; the dims are known. In blocked layouts both count
 * the padding of the last block. ln_layout_bytes returns false above LN_MOST_BYTES. */
void ln_layout_strides(const linnet_layout *layout, const ln_tensor *t, int64_t *strides);
bool ln_layout_bytes(const linnet_layout *layout, const ln_tensor *t, uint64_t *bytes);

#endif
