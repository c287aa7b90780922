/* layout.h - layouts, which say in what order the elements of a tensor lie in memory. linnet_layout of linnet_device.h
 * describes any layout; the layouts of the CPU also have a name (ln_layout of base/types.h). Kernels work with strides.
 */
#ifndef LN_LAYOUT_H
#define LN_LAYOUT_H

#include "base/types.h"
#include "linnet_device.h"

/* Describes the layout of this name (ln_layout) for tensors of this rank. A rank that does not have the layout gets
 * dense. */
void ln_layout_of(int layout, int rank, linnet_layout *out);
/* Compute the strides and the bytes of a tensor of this dtype, rank and dims in this layout. All dims must be known. In
 * blocked layouts, both include the padding of the last block. ln_layout_bytes returns false if the bytes exceed
 * LN_MOST_BYTES. */
void ln_layout_strides(const linnet_layout *layout, const ln_tensor *t, int64_t *strides);
bool ln_layout_bytes(const linnet_layout *layout, const ln_tensor *t, uint64_t *bytes);

/* Sets t->layout (ln_layout), and t->strides for the tensor's dims, which must be known. A rank that does not have the
 * layout gets dense. */
void ln_set_layout(ln_tensor *t, int layout);
/* Tell whether the strides are those of the layout. The strides of dimensions of size 1 do not matter. */
bool ln_has_layout(const ln_tensor *t, int layout);
bool ln_is_dense(const ln_tensor *t);
bool ln_is_channels_last(const ln_tensor *t);
/* Returns the axis whose elements are neighbours in memory, according to t->layout; -1 for rank 0. */
int ln_inner_axis(const ln_tensor *t);
/* Returns "dense" or "channels_last". */
const char *ln_layout_name(int layout);

#endif
