/* train_order.h - the order of the examples in an epoch. */
#ifndef LN_TOOLS_TRAIN_ORDER_H
#define LN_TOOLS_TRAIN_ORDER_H

#include "train.h"

/* Returns the number of the example at position `i` of an epoch of `count` examples. The permutation is the one of
 * linnet.shuffle.permutation. */
uint64_t train_order(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t i);

#endif
