/* infer.h - functions that several shape rules use. */
#ifndef LN_INFER_H
#define LN_INFER_H

#include "kernel/op.h"

/* Applies the op's shape rule. Fails with WRONG_DTYPE for i4, u4 and quantization per block unless the op is defined
 * for them, because most kernels rely on elements of whole bytes and on one scale per tensor or per slice of an axis.
 * Otherwise returns what the rule returns. */
linnet_status ln_infer_outputs(const ln_infer *infer);

/* Broadcasts two shapes, whose dims may be unknown, by NumPy's rules. Sets only rank and dims of out, which may be a or
 * b itself. The rank becomes -1 if one of the ranks is unknown. Errors: SHAPE_MISMATCH if the shapes do not fit. */
linnet_status ln_broadcast(const ln_tensor *a, const ln_tensor *b, ln_tensor *out, linnet_error *error);
/* Replaces the dims of an output that depend on data by their largest possible value. After the shape rule, such a dim
 * is -1 (an op flagged LN_OP_DATA_DEPENDENT) or linnet_user_at_most(n) (a user op). Returns one bit per dim that was
 * replaced. A dim of -1 stays if facts->most is unknown. */
uint16_t ln_bound_output(const ln_infer_facts *facts, ln_tensor *out);
/* Fills in the facts about indices, for rules whose operand 1 holds indices along `axis` of operand 0. Does nothing if
   no facts were requested. With `tuples`, the last dimension of operand 1 holds the numbers of one index; if there are
   several, the facts stay empty. */
void ln_index_facts(const ln_infer *infer, int axis, bool tuples, bool from_start);
/* Reads a scalar or 1-D operand of i32 or i64 as a list into v, which has room for 2 * LN_MAX_RANK numbers. Returns the
 * length; -1 if the operand is absent, of another kind, or not known yet; -2 if the list is too long. */
int ln_int_operand(const ln_tensor *t, int64_t *v);

#endif
