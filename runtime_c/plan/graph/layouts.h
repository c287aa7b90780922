/* layouts.h - chooses the layout that each value gets on the CPU. passes/layout.c applies the choice; places.c asks
 * which conversions a device would add or save. */
#ifndef LN_LAYOUTS_H
#define LN_LAYOUTS_H

#include "plan/graph/work.h"

/* Sets last[value] for the values that get channels-last memory, and `dense` of the nodes that compute in dense memory
 * although their ops prefer another layout. Nodes on devices are dense. */
linnet_status ln_choose_layouts(ln_work *w, bool *last);
/* Returns the layout (LN_PREFER_FREE, LN_PREFER_DENSE or LN_PREFER_CHANNELS_LAST) in which the node reads input k.
 * `dense`: whether its first output is dense, which an input may have to follow. */
int ln_layout_read(const ln_work *w, const ln_work_node *node, int k, bool dense);
/* Tells whether another layout of the value would be a conversion: it is no constant, and its bytes depend on the
 * layout. */
bool ln_has_layouts(const ln_work *w, int32_t value);

#endif
