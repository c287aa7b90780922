/* buffers.h - views, concats without a copy and results in place, and buffers with lifetimes. */
#ifndef LN_PLAN_GRAPH_BUFFERS_H
#define LN_PLAN_GRAPH_BUFFERS_H

#include "plan/graph/work.h"

/* Finds views, concats without a copy and in-place results, and makes buffers with lifetimes. */
linnet_status ln_find_buffers(ln_work *w);
/* Undoes ln_find_buffers, after which all nodes were ready. */
void ln_forget_buffers(ln_work *w);

#endif
