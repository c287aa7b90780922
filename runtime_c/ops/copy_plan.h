/* copy_plan.h - a `copy` call as a list of strided rectangles: what the reference and the fast kernels run.
 * copy_plan.c derives them from kind, attributes and shapes at plan time. */
#ifndef LN_COPY_PLAN_H
#define LN_COPY_PLAN_H

#include "core/kernel.h"

#define LN_COPY_MAX_DIMS (2 * LN_MAX_RANK) /* tile splits every axis in two */

/* Elements dims[0] x ... from input (or the fill value when input is -1) to output. Offsets and strides in elements. */
typedef struct ln_copy_rectangle {
    int32_t input, output;
    int32_t rank;
    int64_t source, target;
    int64_t dims[LN_COPY_MAX_DIMS];
    int64_t source_strides[LN_COPY_MAX_DIMS];
    int64_t target_strides[LN_COPY_MAX_DIMS];
    int64_t items, first_item; /* of the runner: set by ln_copy_cut */
    int64_t rows, panels;      /* work items are row (outer dims) x panel (piece of the inner dims) */
    int64_t panel;             /* size of a panel along dims[rank - 2] for transposes, along the last dim otherwise */
    uint8_t shape;             /* ln_copy_shape */
} ln_copy_rectangle;

enum ln_copy_shape {
    LN_COPY_RUN,       /* inner stride 1 on both sides */
    LN_COPY_TRANSPOSE, /* stride 1 along the last dim of the target and along the last but one of the source */
    LN_COPY_STRIDED,   /* anything else */
    LN_COPY_FILL
};

typedef struct ln_copy_plan {
    int64_t count, capacity;
    ln_copy_rectangle *rectangles;
    int64_t items;
    uint32_t size;       /* bytes of an element */
    int32_t value_input; /* pad: operand that holds the fill value; -1: the attribute */
    unsigned char value[8];
    bool flat; /* a reshape between layouts that no rectangle describes: element by element */
} ln_copy_plan;

/* Parameters of the kinds that take them from attributes or operands. All return LN_COPY_KNOWN when every number is
 * known, LN_COPY_UNKNOWN when an operand's value is not known yet, LN_COPY_BAD on nonsense (the caller words the
 * error). */
enum ln_copy_known { LN_COPY_KNOWN, LN_COPY_UNKNOWN, LN_COPY_BAD };

/* The list of operand `i`, else of the attribute; at most 2 * LN_MAX_RANK entries. */
int ln_copy_list(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int64_t *v, int64_t *n);
/* Axis numbers in [0, rank) from operand i or attribute; all axes when absent or empty. */
int ln_copy_axes(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int rank, int *axes, int *n);
/* Per axis of x (rank known): start, step and count (-1 unknown) of a slice. */
int ln_copy_slice(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *start, int64_t *step,
                  int64_t *count);
/* Per axis of x: elements to add before and after; negative crops. */
int ln_copy_pads(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *begin, int64_t *end);
/* Size of output i of a split along an axis of `size` elements; -1: not known. */
int64_t ln_copy_split_size(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int n_outputs,
                           int64_t size, int i);

/* Builds the plan in memory of ln_call_state. */
linnet_status ln_copy_make_plan(ln_call *call, ln_copy_plan **out);
/* Shared by the reference and the fast kernels: plan in call->state; the run of a plan that is `flat`. */
bool ln_copy_supports(const ln_call *call);
linnet_status ln_copy_configure(ln_call *call);
void ln_copy_flat(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end);
/* Merges dims that can be merged and decides how the rectangle is run; used by ln_copy_make_plan. */
void ln_copy_coalesce(ln_copy_rectangle *r);

/* target[p][q] = source[q][p] for p < rows, q < columns; strides in bytes. */
typedef void (*ln_copy_transpose)(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows,
                                  int64_t columns, size_t size);
/* The same element by element. */
void ln_copy_corner(const char *s, int64_t s_stride, char *t, int64_t t_stride, int64_t rows, int64_t columns,
                    size_t size);
/* Items [begin, end) of the plan in call->state. */
void ln_copy_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, ln_copy_transpose transpose);

#endif
