/* winograd_pack.h - transforms weights for Winograd's algorithm. */
#ifndef LN_FAST_TAIL_WINOGRAD_PACK_H
#define LN_FAST_TAIL_WINOGRAD_PACK_H

#include "fast/tail/winograd.h"

/* `pack` of the kernel: transforms constant weights, and copies a constant bias. */
void ln_winograd_pack(const ln_call *call, void *packed);
/* Writes the bias to its place in the packed memory, or zeros if bias is NULL. */
void ln_winograd_pack_bias(const ln_call *call, const void *bias, void *packed);

#endif
