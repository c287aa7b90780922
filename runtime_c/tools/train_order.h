/* train_order.h - the order of the examples in an epoch. */
#ifndef LN_TOOLS_TRAIN_ORDER_H
#define LN_TOOLS_TRAIN_ORDER_H

#include "train.h"

/* Returns the number of the example at position `i` < `count` of an epoch of `count` examples. The order depends only
 * on `count`, `seed` and `epoch`, and is the same as that of linnet.shuffle.permutation. */
uint64_t train_order(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t i);

#endif
