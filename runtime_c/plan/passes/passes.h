/* passes.h - the passes between the expanded graph and its program, one file each. A pass calls no other pass.
 * plan/compile/passes.inc has their order. Every pass changes the graph *w in place. If a pass fails, which it does
 * with OUT_OF_MEMORY or an error of a kernel or device, the graph is no longer valid and planning ends. */
#ifndef LN_PASSES_H
#define LN_PASSES_H

#include "plan/graph/work.h"

/* places.c: decides which nodes run on a device. */
linnet_status ln_pass_places(ln_work *w);
/* transfers.c: inserts transfers of values between the places. */
linnet_status ln_pass_transfers(ln_work *w);
/* shuffle.c: replaces the three copies of a channel shuffle by one. */
linnet_status ln_pass_shuffle(ln_work *w);
/* layout.c: chooses the layout of every value, and inserts conversions. */
linnet_status ln_pass_layout(ln_work *w);
/* storage.c: adds casts around f16 and bf16 nodes whose only fast kernel is in f32, and keeps values in f32 where
   conversions take longer than they save. */
linnet_status ln_pass_storage(ln_work *w);
/* fuse.c: turns maps into epilogues. */
linnet_status ln_pass_fuse(ln_work *w);
/* order.c: in graphs that update variables, runs nodes that free memory as early as possible, and an update after every
   node that reads the old value or can fail. */
linnet_status ln_pass_order(ln_work *w);
/* recompute.c: in an ordered graph, computes values again instead of keeping them, until the arena is no larger than
   w->recomputing.target, if possible. */
linnet_status ln_pass_recompute(ln_work *w);
/* waits.c: inserts the waits of the host, and marks the transfers that record events. The order of the nodes must be
   final. */
linnet_status ln_pass_waits(ln_work *w);
/* claims.c: lets devices choose private layouts, and claim sequences of steps that they execute as one. */
linnet_status ln_pass_claims(ln_work *w);
/* branches.c: finds branches of the graph that run side by side, and makes the nodes of each branch consecutive. */
linnet_status ln_pass_branches(ln_work *w);
/* alias.c: puts every value into a buffer, and marks the buffers that updates read. */
linnet_status ln_pass_alias(ln_work *w);
/* offsets.c: sets the offsets of the host's buffers, and counts their bytes. */
linnet_status ln_pass_offsets(ln_work *w);
/* device_memory.c: sets the offsets of the buffers on devices, and the sizes of the allocations there. */
linnet_status ln_pass_device_memory(ln_work *w);
/* frame.c: with a frame, sets the offsets of an earlier plan, or stores those of this one. */
linnet_status ln_pass_frame(ln_work *w);

#endif
