/* copy_kinds.h - what the kinds of `copy` do with the elements of their operand, for the kernels of `copy` and for
 * passes, which ask these functions. */
#ifndef LN_COPY_KINDS_H
#define LN_COPY_KINDS_H

#include "generated/op_table.h"

/* A kind that only passes make (plan/passes/shuffle.c): the channels, which are along `axis`, are `block` groups, of
 * which the result has the first channels, then the second ones, and so on. */
enum { LN_COPY_SHUFFLE = 64 };

static inline bool ln_copy_is(const void *attributes, int64_t kind) {
    return ((const ln_copy_attributes *)attributes)->kind == kind;
}
/* Whether the result has the elements of the operand in the same dense order. */
static inline bool ln_copy_keeps_order(const ln_copy_attributes *a) {
    return a->kind == LN_COPY_KIND_IDENTITY || a->kind == LN_COPY_KIND_BITCAST || a->kind == LN_COPY_KIND_RESHAPE ||
           a->kind == LN_COPY_KIND_SQUEEZE || a->kind == LN_COPY_KIND_UNSQUEEZE;
}
/* Whether every number of the operand is in the result, and no other. */
static inline bool ln_copy_keeps_numbers(const ln_copy_attributes *a) {
    return (ln_copy_keeps_order(a) && a->kind != LN_COPY_KIND_BITCAST) || a->kind == LN_COPY_KIND_TRANSPOSE ||
           a->kind == LN_COPY_KIND_EXPAND;
}

#endif
