/* copy_kinds.h - tells what each kind of `copy` does with the elements of its operand, for the kernels of `copy` and
 * for passes. */
#ifndef LN_COPY_KINDS_H
#define LN_COPY_KINDS_H

#include "generated/op_table.h"

/* A channel shuffle. Only a pass makes this kind (plan/passes/shuffle.c), so files do not contain it. The channels
 * along `axis` form `block` groups. The result has the first channel of every group, then the second of every group,
 * and so on. */
enum { LN_COPY_SHUFFLE = 64 };

/* Tells whether the attributes of a `copy` node are of this kind. */
static inline bool ln_copy_is(const void *attributes, int64_t kind) {
    return ((const ln_copy_attributes *)attributes)->kind == kind;
}
/* Tells whether the result has the elements of the operand in the same logical row-major order, so that only the shape
 * or the dtype differs. */
static inline bool ln_copy_keeps_order(const ln_copy_attributes *a) {
    return a->kind == LN_COPY_KIND_IDENTITY || a->kind == LN_COPY_KIND_BITCAST || a->kind == LN_COPY_KIND_RESHAPE ||
           a->kind == LN_COPY_KIND_SQUEEZE || a->kind == LN_COPY_KIND_UNSQUEEZE;
}
/* Tells whether the result contains every value of the operand and no other value. Values may move, or be repeated. */
static inline bool ln_copy_keeps_numbers(const ln_copy_attributes *a) {
    return (ln_copy_keeps_order(a) && a->kind != LN_COPY_KIND_BITCAST) || a->kind == LN_COPY_KIND_TRANSPOSE ||
           a->kind == LN_COPY_KIND_EXPAND;
}

#endif
