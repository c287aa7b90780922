/* copy_plan.h - a `copy` call as a list of strided rectangles, which the reference and the fast kernels run.
 * copy_plan.c derives them from kind, attributes and shapes at plan time. */
#ifndef LN_COPY_PLAN_H
#define LN_COPY_PLAN_H

#include "kernel/common/copy_kinds.h"
#include "kernel/kernel.h"

#define LN_COPY_MAX_DIMS (2 * LN_MAX_RANK) /* `tile` splits every axis in two */

/* One dim of a rectangle; strides are in elements. */
typedef struct ln_copy_dim {
    int64_t size, source, target;
} ln_copy_dim;

/* Copies dims[0].size x ... elements from input (or the fill value if input is -1) to output. Offsets are in elements.
 */
typedef struct ln_copy_rectangle {
    int32_t input, output;
    int32_t rank;
    uint8_t shape; /* ln_copy_shape */
    int64_t source, target;
    const ln_copy_dim *dims;
    int64_t items, first_item; /* for the runner */
    int64_t panels;            /* a work item is one panel (a piece of the inner dims) of one row (outer dims) */
    int64_t panel;             /* size of a panel along dims[rank - 2] for transposes, along the last dim otherwise */
} ln_copy_rectangle;

enum ln_copy_shape {
    LN_COPY_RUN,       /* inner stride 1 on both sides */
    LN_COPY_TRANSPOSE, /* stride 1 along the last dim of the target and along the second-to-last dim of the source */
    LN_COPY_STRIDED,   /* anything else */
    LN_COPY_FILL
};

typedef struct ln_copy_plan {
    int64_t count, n_dims; /* number of rectangles, and of all their dims */
    ln_copy_rectangle *rectangles;
    ln_copy_dim *dims;
    int64_t items;
    uint32_t size;       /* bytes of an element */
    int32_t value_input; /* pad: the operand with the fill value; -1: the attribute */
    unsigned char value[8];
    bool flat; /* a reshape between layouts that no rectangle describes, done element by element */
} ln_copy_plan;

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
/* Builds the plan in memory of ln_call_state. */
linnet_status ln_copy_make_plan(ln_call *call, ln_copy_plan **out);
/* Shared by the reference and the fast kernels: the plan in call->state, and the run of a plan that is `flat`. */
bool ln_copy_can(const ln_call *call);
void ln_copy_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
linnet_status ln_copy_configure(ln_call *call);
void ln_copy_flat(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);

/* target[p][q] = source[q][p] for p < rows, q < columns; strides in bytes. */
typedef void (*ln_copy_transpose)(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows,
                                  int64_t columns, size_t size);
/* The same, element by element. */
void ln_copy_corner(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows, int64_t columns,
                    size_t size);
/* Runs items [begin, end) of the plan in call->state. */
void ln_copy_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, ln_copy_transpose transpose);

#endif
