/* copy_operands.h - the parameters of copies, from attributes or operands. */
#ifndef LN_OPS_COPY_OPERANDS_H
#define LN_OPS_COPY_OPERANDS_H

#include "kernel/kernel.h"

/* What the functions below return: LN_COPY_KNOWN if every number is known, LN_COPY_UNKNOWN if the value of an operand
 * is not known yet, and LN_COPY_BAD if a value is invalid. The caller then writes the error text. */
enum ln_copy_known { LN_COPY_KNOWN, LN_COPY_UNKNOWN, LN_COPY_BAD };

/* Tells whether operand `i` exists. */
static inline bool ln_copy_given(const ln_tensor *inputs, int n_inputs, int i) {
    return i < n_inputs && inputs[i].dtype != LINNET_NONE;
}
/* Reads the list of operand `i`, or of the attribute if there is no such operand, into v and its length into *n. v has
 * room for 2 * LN_MAX_RANK numbers. */
int ln_copy_list(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int64_t *v, int64_t *n);
/* Reads axis numbers in [0, rank) from operand i or the attribute. An absent or empty list means all axes. */
int ln_copy_axes(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int rank, int *axes, int *n);
/* Reads start, step and count of a slice, per axis of x. x must have a known rank. A count of -1 is not known yet. */
int ln_copy_slice(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *start, int64_t *step,
                  int64_t *count);
/* Reads how many elements a pad adds before and after, per axis of x. Negative numbers crop. */
int ln_copy_pads(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *begin, int64_t *end);
/* Returns the size of output i of a split along an axis of `size` elements; -1: not known yet. */
int64_t ln_copy_split_size(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int n_outputs,
                           int64_t size, int i);

#endif
