/* winograd_pack.h - transforms weights for Winograd's algorithm. */
#ifndef LN_FAST_TAIL_WINOGRAD_PACK_H
#define LN_FAST_TAIL_WINOGRAD_PACK_H

#include "fast/tail/winograd.h"

void ln_winograd_pack(const ln_call *call, void *packed);
void ln_winograd_pack_bias(const ln_call *call, const void *bias, void *packed); /* bias: NULL if there is none */

#endif
