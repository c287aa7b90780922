/* infer.h - what shape rules share. */
#ifndef LN_INFER_H
#define LN_INFER_H

#include "kernel/op.h"

/* Applies the op's shape rule. Refuses i4, u4 and quantization per block unless the op is defined for
 * them, because most kernels rely on elements of whole bytes and on one scale per tensor or axis. */
linnet_status ln_infer_outputs(const ln_infer *infer);

/* Broadcasts two shapes with unknown dimensions into out, by NumPy's rules (rank and dims only). SHAPE_MISMATCH if they
 * do not fit. */
linnet_status ln_broadcast(const ln_tensor *a, const ln_tensor *b, ln_tensor *out, linnet_error *error);
/* Fills the dims of an output that depend on data with their largest possible value. Such a dim is -1 from the rule of
 * an op with that flag, or linnet_user_at_most(n) from a user op. Returns one bit per such dim, and 0 if the operands
 * do not determine a bound. */
uint16_t ln_bound_output(const ln_infer_facts *facts, ln_tensor *out);
/* Reports the fact about indices, for rules whose operand 1 holds indices along one axis of operand 0. With `tuples`,
   the last dimension of operand 1 is one index, and the fact is omitted if an index has several numbers. */
void ln_index_facts(const ln_infer *infer, int axis, bool tuples, bool from_start);
/* Reads a 1-D (or scalar) i32/i64 operand as a list into v (at most LN_MAX_RANK * 2 entries). Returns its length, -1 if
 * the operand is absent or its value is not known yet, -2 if it is too long. */
int ln_int_operand(const ln_tensor *t, int64_t *v);

#endif
