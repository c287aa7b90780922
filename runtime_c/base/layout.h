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

/* Sets the layout (ln_layout) and the strides for the tensor's dims. A rank that does not have the layout gets dense.
 */
void ln_set_layout(ln_tensor *t, int layout);
/* Whether the strides are those of the layout. Dimensions of size 1 do not matter. */
bool ln_has_layout(const ln_tensor *t, int layout);
bool ln_is_dense(const ln_tensor *t);
bool ln_is_channels_last(const ln_tensor *t);
/* The axis whose elements lie together; -1 for rank 0. */
int ln_inner_axis(const ln_tensor *t);
const char *ln_layout_name(int layout); /* "dense", "channels_last" */

#endif
