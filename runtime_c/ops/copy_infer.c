/* copy_infer.c - the shape rule of `copy`, with one function per kind, which follows the ONNX op of the same name. */
#include "kernel/common/index.h"
#include "kernel/infer.h"
#include "ops/copy_operands.h"
#include "ops/copy_plan.h"

#include <string.h>

static linnet_status bad(const ln_infer *infer, linnet_status code, const char *what, const char *expected) {
    char text[80];
    ln_fail(infer->error, code, "%s", what);
    ln_expected(infer->error, "%s", expected);
    return ln_got(infer->error, "input %s",
                  ln_shape_text(infer->inputs[0].dims, infer->inputs[0].rank, text, sizeof text)),
           code;
}

/* Sets the rank of the result to the length of the shape operand, whose value is not known. */
static void unknown_shape(const ln_infer *infer, int operand, ln_tensor *y) {
    int64_t n = -1;
    if (ln_copy_given(infer->inputs, infer->n_inputs, operand) && infer->inputs[operand].rank == 1)
        n = infer->inputs[operand].dims[0];
    y->rank = n >= 0 && n <= LN_MAX_RANK ? (int8_t)n : -1;
    for (int d = 0; d < y->rank; d++) y->dims[d] = -1;
}

/* Tells whether at least one dimension is 0. */
static bool is_empty(const ln_tensor *x) {
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] == 0) return true;
    return false;
}

/* Returns the product of dims; -1 if one is unknown, -2 on overflow. The product is 0 only if all dims are known and
 * one is 0. */
static int64_t product(const int64_t *dims, int n) {
    uint64_t p = 1;
    bool zero = false;
    for (int d = 0; d < n; d++) {
        if (dims[d] < 0) return -1;
        zero = zero || dims[d] == 0;
    }
    for (int d = 0; d < n && !zero; d++) {
        if ((uint64_t)dims[d] > ((uint64_t)1 << 62) / p) return -2;
        p *= (uint64_t)dims[d];
    }
    return zero ? 0 : (int64_t)p;
}

static linnet_status infer_reshape(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x,
                                   ln_tensor *y) {
    int64_t v[2 * LN_MAX_RANK], n, from[LN_MAX_RANK], to[LN_MAX_RANK];
    int known = ln_copy_list(infer->inputs, infer->n_inputs, 1, &a->shape, v, &n), hole = -1, n_from = 0, n_to = 0;
    if (known == LN_COPY_UNKNOWN) {
        unknown_shape(infer, 1, y);
        return LINNET_OK;
    }
    if (known == LN_COPY_BAD || n > LN_MAX_RANK)
        return bad(infer, LINNET_SHAPE_MISMATCH, "reshape: the new shape has too many dimensions",
                   "at most 8 dimensions");
    y->rank = (int8_t)n;
    bool copied[LN_MAX_RANK] = {false};
    for (int d = 0; d < n; d++) {
        y->dims[d] = v[d];
        if (v[d] == 0 && !a->allow_zero) {
            if (x->rank >= 0 && d >= x->rank)
                return bad(infer, LINNET_SHAPE_MISMATCH, "reshape: a 0 in the new shape has no input dimension to copy",
                           "0 only at positions below the rank of the input");
            copied[d] = x->rank >= 0;
            y->dims[d] = x->rank >= 0 ? x->dims[d] : -1;
        } else if (v[d] == -1) {
            if (hole >= 0)
                return bad(infer, LINNET_BAD_ATTRIBUTE, "reshape: the new shape has more than one -1",
                           "at most one -1");
            hole = d;
        } else if (v[d] < -1) {
            return bad(infer, LINNET_BAD_ATTRIBUTE, "reshape: the new shape has a dimension below -1",
                       "dimensions >= -1");
        }
    }
    if (x->rank < 0) return LINNET_OK;
    /* Copied dimensions cancel out. The other dimensions can therefore be computed even if the batch is unknown or
       empty. */
    for (int d = 0; d < x->rank; d++)
        if (!(d < n && copied[d])) from[n_from++] = x->dims[d];
    bool other_unknown = false;
    for (int d = 0; d < n; d++) {
        if (d == hole || copied[d]) continue;
        other_unknown = other_unknown || y->dims[d] < 0;
        to[n_to++] = y->dims[d];
    }
    int64_t have = product(from, n_from), want = product(to, n_to);
    if (have == -2 || want == -2)
        return bad(infer, LINNET_TOO_LARGE, "reshape: there are too many elements", "fewer than 2^62 elements");
    if (have < 0 || want < 0 || other_unknown) return LINNET_OK;
    if (hole >= 0) {
        if (want == 0 ? have != 0 : have % want != 0)
            return bad(infer, LINNET_SHAPE_MISMATCH, "reshape: cannot infer the dimension given as -1",
                       "a number of elements that the other dimensions divide evenly");
        y->dims[hole] = want == 0 ? 0 : have / want;
    } else if (have != want && !(is_empty(x) && is_empty(y))) {
        char text[80];
        bad(infer, LINNET_SHAPE_MISMATCH, "reshape: the new shape has a different number of elements",
            "the number of elements of the input");
        return ln_hint(infer->error, "correct the new shape %s", ln_shape_text(y->dims, y->rank, text, sizeof text)),
               LINNET_SHAPE_MISMATCH;
    }
    return LINNET_OK;
}

static linnet_status infer_transpose(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x,
                                     ln_tensor *y) {
    uint32_t seen = 0;
    y->rank = x->rank;
    if (x->rank < 0) {
        y->rank = a->perm.n > 0 && a->perm.n <= LN_MAX_RANK ? (int8_t)a->perm.n : -1;
        for (int d = 0; d < y->rank; d++) y->dims[d] = -1;
        return LINNET_OK;
    }
    if (a->perm.n != 0 && a->perm.n != x->rank)
        return bad(infer, LINNET_BAD_ATTRIBUTE, "transpose: the length of perm differs from the rank",
                   "one entry per dimension");
    for (int d = 0; d < x->rank; d++) {
        int from = a->perm.n ? ln_axis(a->perm.v[d], x->rank) : x->rank - 1 - d;
        if (from < 0 || seen >> from & 1u)
            return bad(infer, LINNET_BAD_ATTRIBUTE, "transpose: perm is not a permutation", "each axis once");
        seen |= 1u << from;
        y->dims[d] = x->dims[from];
    }
    return LINNET_OK;
}

static linnet_status infer_concat(const ln_infer *infer, const ln_copy_attributes *a, ln_tensor *y) {
    y->rank = -1;
    for (int i = 0; i < infer->n_inputs; i++) {
        const ln_tensor *x = &infer->inputs[i];
        if (x->dtype != infer->inputs[0].dtype)
            return bad(infer, LINNET_WRONG_DTYPE, "concat: the operands have different dtypes",
                       "the same dtype for all operands");
        if (x->rank < 0) continue;
        int axis = ln_axis(a->axis, x->rank);
        if (axis < 0)
            return bad(infer, LINNET_BAD_ATTRIBUTE, "concat: the axis is out of range", "an axis in [-rank, rank)");
        if (y->rank < 0) {
            ln_same_shape(x, y);
            continue;
        }
        bool fits = x->rank == y->rank;
        for (int d = 0; fits && d < x->rank; d++) {
            if (d == axis) {
                y->dims[d] = y->dims[d] < 0 || x->dims[d] < 0 ? -1 : y->dims[d] + x->dims[d];
                continue;
            }
            fits = y->dims[d] < 0 || x->dims[d] < 0 || y->dims[d] == x->dims[d];
            if (y->dims[d] < 0) y->dims[d] = x->dims[d];
        }
        if (!fits)
            return bad(infer, LINNET_SHAPE_MISMATCH, "concat: the shapes differ in a dimension other than the axis",
                       "equal ranks, and equal dimensions except along the axis");
    }
    for (int i = 0; i < infer->n_inputs && y->rank >= 0; i++)
        if (infer->inputs[i].rank < 0) y->dims[ln_axis(a->axis, y->rank)] = -1;
    return LINNET_OK;
}

static linnet_status infer_split(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x) {
    int64_t sum = 0, size;
    bool known = true;
    if (x->rank < 0) {
        for (int i = 0; i < infer->n_outputs; i++) infer->outputs[i].rank = -1;
        return LINNET_OK;
    }
    int axis = ln_axis(a->axis, x->rank);
    if (axis < 0)
        return bad(infer, LINNET_BAD_ATTRIBUTE, "split: the axis is out of range", "an axis in [-rank, rank)");
    if (!ln_copy_given(infer->inputs, infer->n_inputs, 1) && a->shape.n != 0 && a->shape.n != infer->n_outputs)
        return bad(infer, LINNET_BAD_ATTRIBUTE, "split: the numbers of sizes and outputs differ",
                   "one size per output");
    if (ln_copy_given(infer->inputs, infer->n_inputs, 1) && infer->inputs[1].data &&
        ln_count(&infer->inputs[1]) != infer->n_outputs)
        return bad(infer, LINNET_BAD_ATTRIBUTE, "split: the numbers of sizes and outputs differ",
                   "one size per output");
    const int64_t least =
        ln_copy_given(infer->inputs, infer->n_inputs, 1) || a->shape.n == 0 ? -1 : 0; /* -1: not known yet */
    for (int i = 0; i < infer->n_outputs; i++) {
        ln_same_shape(x, &infer->outputs[i]);
        size = ln_copy_split_size(a, infer->inputs, infer->n_inputs, infer->n_outputs, x->dims[axis], i);
        if (size < least || (size >= 0 && size > INT64_MAX - sum))
            return bad(infer, LINNET_BAD_ATTRIBUTE, "split: a size is negative or too large", "sizes >= 0");
        infer->outputs[i].dims[axis] = size;
        known = known && size >= 0;
        sum += size > 0 ? size : 0;
    }
    if (known && x->dims[axis] >= 0 && sum != x->dims[axis])
        return bad(infer, LINNET_SHAPE_MISMATCH, "split: the sizes do not add up to the dimension",
                   "sizes whose sum is the dimension");
    return LINNET_OK;
}

static linnet_status infer_tile(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x, ln_tensor *y) {
    int64_t v[2 * LN_MAX_RANK], n;
    int known = ln_copy_list(infer->inputs, infer->n_inputs, 1, &a->shape, v, &n);
    y->rank = x->rank;
    for (int d = 0; d < x->rank; d++) y->dims[d] = -1;
    if (known == LN_COPY_UNKNOWN || x->rank < 0) return LINNET_OK;
    if (known == LN_COPY_BAD || n != x->rank)
        return bad(infer, LINNET_SHAPE_MISMATCH, "tile: the number of repeats differs from the rank",
                   "one repeat per dimension");
    for (int d = 0; d < x->rank; d++) {
        if (v[d] < 0 || (x->dims[d] > 0 && v[d] > ((int64_t)1 << 48) / x->dims[d]))
            return bad(infer, LINNET_BAD_ATTRIBUTE, "tile: a repeat is negative or too large",
                       "repeats >= 0 and dimensions of at most 2^48");
        y->dims[d] = v[d] == 0 ? 0 : x->dims[d] < 0 ? -1 : x->dims[d] * v[d];
    }
    return LINNET_OK;
}

static linnet_status infer_expand(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x,
                                  ln_tensor *y) {
    int64_t n;
    ln_tensor shape;
    memset(&shape, 0, sizeof shape);
    int64_t v[2 * LN_MAX_RANK];
    int known = ln_copy_list(infer->inputs, infer->n_inputs, 1, &a->shape, v, &n);
    if (known == LN_COPY_BAD || n > LN_MAX_RANK)
        return bad(infer, LINNET_SHAPE_MISMATCH, "expand: the new shape has too many dimensions",
                   "at most 8 dimensions");
    if (known == LN_COPY_UNKNOWN) {
        unknown_shape(infer, 1, &shape);
    } else {
        shape.rank = (int8_t)n;
        for (int d = 0; d < n; d++) {
            if (v[d] < 0)
                return bad(infer, LINNET_BAD_ATTRIBUTE, "expand: the new shape has a negative dimension",
                           "dimensions >= 0");
            shape.dims[d] = v[d];
        }
    }
    return ln_broadcast(x, &shape, y, infer->error);
}

static linnet_status infer_squeeze(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x,
                                   ln_tensor *y) {
    int axes[2 * LN_MAX_RANK], n = 0, known = LN_COPY_UNKNOWN;
    bool listed = ln_copy_given(infer->inputs, infer->n_inputs, 1) || a->axes.n > 0;
    uint32_t gone = 0;
    y->rank = -1;
    if (x->rank < 0) return LINNET_OK;
    if (listed) {
        known = ln_copy_axes(infer->inputs, infer->n_inputs, 1, &a->axes, x->rank, axes, &n);
        if (known == LN_COPY_BAD)
            return bad(infer, LINNET_BAD_ATTRIBUTE, "squeeze: an axis is out of range or listed twice",
                       "axes in [-rank, rank), each once");
        if (known == LN_COPY_UNKNOWN) return LINNET_OK;
        /* An empty list in an operand is the same as no list. */
        listed = !(ln_copy_given(infer->inputs, infer->n_inputs, 1) && ln_count(&infer->inputs[1]) == 0);
    }
    for (int k = 0; listed && k < n; k++) {
        if (x->dims[axes[k]] != 1 && x->dims[axes[k]] >= 0)
            return bad(infer, LINNET_SHAPE_MISMATCH, "squeeze: the dimension of an axis is not 1", "dimension 1");
        gone |= 1u << axes[k];
    }
    for (int d = 0; !listed && d < x->rank; d++) {
        if (x->dims[d] < 0) return LINNET_OK; /* the rank of the result depends on whether this dimension is 1 */
        gone |= x->dims[d] == 1 ? 1u << d : 0;
    }
    y->rank = 0;
    for (int d = 0; d < x->rank; d++)
        if (!(gone >> d & 1u)) y->dims[y->rank++] = x->dims[d];
    return LINNET_OK;
}

static linnet_status infer_unsqueeze(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x,
                                     ln_tensor *y) {
    int64_t v[2 * LN_MAX_RANK], n;
    uint32_t added = 0;
    int known = ln_copy_list(infer->inputs, infer->n_inputs, 1, &a->axes, v, &n);
    y->rank = -1;
    if (known == LN_COPY_UNKNOWN || x->rank < 0) return LINNET_OK;
    if (known == LN_COPY_BAD || x->rank + n > LN_MAX_RANK)
        return bad(infer, LINNET_SHAPE_MISMATCH, "unsqueeze: the result has too many dimensions",
                   "at most 8 dimensions");
    const int rank = x->rank + (int)n;
    for (int64_t k = 0; k < n; k++) {
        int d = ln_axis(v[k], rank);
        if (d < 0 || added >> d & 1u)
            return bad(infer, LINNET_BAD_ATTRIBUTE, "unsqueeze: an axis is out of range or listed twice",
                       "axes in [-rank, rank) of the result, each once");
        added |= 1u << d;
    }
    int from = 0;
    y->rank = (int8_t)rank;
    for (int d = 0; d < rank; d++) y->dims[d] = added >> d & 1u ? 1 : x->dims[from++];
    return LINNET_OK;
}

static linnet_status infer_depth(const ln_infer *infer, const ln_copy_attributes *a, const ln_tensor *x, ln_tensor *y) {
    bool to_space = a->kind == LN_COPY_KIND_DEPTH_TO_SPACE;
    int64_t block = a->block;
    y->rank = x->rank;
    if (x->rank < 0) return LINNET_OK;
    int axis = ln_axis(a->axis, x->rank);
    if (x->rank != 4 || (axis != 1 && axis != 3) || block < 1 || block > 32768)
        return bad(infer, LINNET_BAD_ATTRIBUTE,
                   "depth_to_space or space_to_depth: the rank, axis or block is not supported",
                   "rank 4, axis 1 or -1, block from 1 to 32768");
    for (int d = 0; d < 4; d++) {
        int64_t by = d == axis ? block * block : block, size = x->dims[d];
        y->dims[d] = size;
        if (d == 0 || size < 0) continue;
        if ((d == axis) == to_space) {
            if (size % by != 0)
                return bad(infer, LINNET_SHAPE_MISMATCH,
                           "space_to_depth or depth_to_space: the block does not divide a dimension",
                           "multiples of the block size, or of its square along the axis");
            y->dims[d] = size / by;
        } else {
            if (size > ((int64_t)1 << 48) / by)
                return bad(infer, LINNET_TOO_LARGE,
                           "space_to_depth or depth_to_space: a dimension of the result is too large",
                           "dimensions of at most 2^48");
            y->dims[d] = size * by;
        }
    }
    return LINNET_OK;
}

linnet_status ln_infer_copy(const ln_infer *infer) {
    const ln_copy_attributes *a = infer->attributes;
    const ln_tensor *x = &infer->inputs[0];
    ln_tensor *y = &infer->outputs[0];
    int64_t first[LN_MAX_RANK], second[LN_MAX_RANK], count[LN_MAX_RANK];
    if (x->dtype == LINNET_NONE)
        return bad(infer, LINNET_SHAPE_MISMATCH, "copy: the first operand is missing", "a tensor");
    if (a->kind != LN_COPY_KIND_SPLIT && infer->n_outputs != 1)
        return bad(infer, LINNET_BAD_ATTRIBUTE, "copy: only split has more than one output", "one output");
    if (ln_dtype_bits(x->dtype) < 8 && !ln_copy_keeps_order(a))
        return bad(infer, LINNET_WRONG_DTYPE, "copy is not defined for i4 and u4 if it reorders elements",
                   "elements of whole bytes; cast the operand to i8 or u8 first");
    for (int i = 0; i < infer->n_outputs; i++) infer->outputs[i].dtype = x->dtype;
    switch (a->kind) {
    case LN_COPY_KIND_BITCAST:
        if (ln_dtype_bits((int)a->dtype) != ln_dtype_bits(x->dtype))
            return bad(infer, LINNET_BAD_ATTRIBUTE, "bitcast: the two dtypes have different widths",
                       "a dtype as wide as the input's dtype");
        y->dtype = (uint8_t)a->dtype;
        ln_same_shape(x, y);
        return LINNET_OK;
    case LN_COPY_KIND_IDENTITY: ln_same_shape(x, y); return LINNET_OK;
    case LN_COPY_KIND_RESHAPE: return infer_reshape(infer, a, x, y);
    case LN_COPY_KIND_TRANSPOSE: return infer_transpose(infer, a, x, y);
    case LN_COPY_KIND_CONCAT: return infer_concat(infer, a, y);
    case LN_COPY_KIND_SPLIT: return infer_split(infer, a, x);
    case LN_COPY_KIND_SLICE:
        y->rank = x->rank;
        if (x->rank >= 0 && ln_copy_slice(a, infer->inputs, infer->n_inputs, first, second, y->dims) == LN_COPY_BAD)
            return bad(infer, LINNET_BAD_ATTRIBUTE, "slice: starts, ends, axes or steps are wrong",
                       "equally many starts, ends, axes and steps, with each axis in range and no step of 0");
        return LINNET_OK;
    case LN_COPY_KIND_PAD:
        y->rank = x->rank;
        if (x->rank < 0) return LINNET_OK;
        switch (ln_copy_pads(a, infer->inputs, infer->n_inputs, first, second)) {
        case LN_COPY_BAD:
            return bad(infer, LINNET_BAD_ATTRIBUTE, "pad: pads or axes are wrong",
                       "one begin and one end per axis, of at most 2^48");
        case LN_COPY_UNKNOWN:
            for (int d = 0; d < x->rank; d++) y->dims[d] = -1;
            return LINNET_OK;
        default: break;
        }
        for (int d = 0; d < x->rank; d++) {
            count[d] = x->dims[d] + first[d] + second[d];
            y->dims[d] = x->dims[d] < 0 ? -1 : count[d];
            if (x->dims[d] >= 0 && count[d] < 0)
                return bad(infer, LINNET_SHAPE_MISMATCH, "pad: negative pads remove more than the whole dimension",
                           "dimensions >= 0 in the result");
            if (x->dims[d] >= 0 && x->dims[d] - ln_max(0, -first[d]) - ln_max(0, -second[d]) <= 0 &&
                a->pad_mode != LN_COPY_PAD_MODE_CONSTANT && count[d] > 0)
                return bad(infer, LINNET_SHAPE_MISMATCH, "pad: only constant padding can extend an empty axis",
                           "a dimension > 0");
        }
        return LINNET_OK;
    case LN_COPY_KIND_EXPAND: return infer_expand(infer, a, x, y);
    case LN_COPY_KIND_TILE: return infer_tile(infer, a, x, y);
    case LN_COPY_KIND_SQUEEZE: return infer_squeeze(infer, a, x, y);
    case LN_COPY_KIND_UNSQUEEZE: return infer_unsqueeze(infer, a, x, y);
    default: return infer_depth(infer, a, x, y);
    }
}
