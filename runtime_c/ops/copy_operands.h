/* copy_operands.h - the parameters of copies, from attributes or operands. */
#ifndef LN_OPS_COPY_OPERANDS_H
#define LN_OPS_COPY_OPERANDS_H

#include "kernel/kernel.h"

/* Parameters of the kinds that read them from attributes or operands. All return LN_COPY_KNOWN if every number is
 * known, LN_COPY_UNKNOWN if an operand's value is not known yet, and LN_COPY_BAD for invalid values (the caller writes
 * the error text). */
enum ln_copy_known { LN_COPY_KNOWN, LN_COPY_UNKNOWN, LN_COPY_BAD };

/* Whether there is an operand `i`. */
static inline bool ln_copy_given(const ln_tensor *inputs, int n_inputs, int i) {
    return i < n_inputs && inputs[i].dtype != LINNET_NONE;
}
/* The list of operand `i`, or of the attribute if there is no such operand; at most 2 * LN_MAX_RANK entries. */
int ln_copy_list(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int64_t *v, int64_t *n);
/* Axis numbers in [0, rank) from operand i or the attribute; all axes if absent or empty. */
int ln_copy_axes(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int rank, int *axes, int *n);
/* Start, step and count (-1 unknown) of a slice, per axis of x (whose rank is known). */
int ln_copy_slice(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *start, int64_t *step,
                  int64_t *count);
/* Number of elements to add before and after, per axis of x; negative numbers crop. */
int ln_copy_pads(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *begin, int64_t *end);
/* Size of output i of a split along an axis of `size` elements; -1: not known yet. */
int64_t ln_copy_split_size(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int n_outputs,
                           int64_t size, int i);

#endif
