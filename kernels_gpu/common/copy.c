/* copy.c - launches copies (transpose, concat, split, slice, expand, tile, depth_to_space and pad) as boxes with
 * strides on both sides (copy.inc). Reshapes and similar copies move nothing; the planner makes them views. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/layout.h"
#include "kernels_gpu/common/step.h"

#include <math.h>
#include <string.h>

enum {
    IDENTITY,
    RESHAPE,
    TRANSPOSE,
    CONCAT,
    SPLIT,
    SLICE,
    PAD,
    EXPAND,
    TILE,
    SQUEEZE,
    UNSQUEEZE,
    TO_SPACE,
    TO_DEPTH,
    BITCAST
};
enum { CONSTANT, REFLECT, EDGE, WRAP };
enum { MOST_DIMS = 2 * LINNET_MAX_RANK, KERNEL_DIMS = 8 };

typedef struct box {
    int rank;
    int64_t size[MOST_DIMS], x[MOST_DIMS], y[MOST_DIMS], x_at, y_at;
} box;

/* Adds an innermost dimension, and joins it with the previous one if both are contiguous in x and in y. */
static void append(box *b, int64_t size, int64_t x, int64_t y) {
    if (size == 1) return;
    const int last = b->rank - 1;
    if (last >= 0 && b->x[last] == x * size && b->y[last] == y * size) {
        b->size[last] *= size, b->x[last] = x, b->y[last] = y;
        return;
    }
    b->size[b->rank] = size, b->x[b->rank] = x, b->y[b->rank] = y;
    b->rank++;
}

static int64_t stride(const linnet_device_tensor *t, int d) { return lg_shape_product(t, d + 1, t->rank); }

/* Reads a list from operand `input` if the step has it, else from the attribute. Returns the length of the list; -1 if
 * the list is not known. */
static int list(const lg_step *s, const char *attribute, int input, int64_t *out) {
    if (lg_absent(s, input)) {
        const int n = lg_items(s, attribute);
        if (n > MOST_DIMS) return -1;
        for (int i = 0; i < n; ++i) out[i] = lg_item(s, attribute, i, 0);
        return n;
    }
    const linnet_device_tensor *t = &s->inputs[input];
    const int64_t n = lg_count(t);
    if (t->data == NULL || n > MOST_DIMS || (t->dtype != LINNET_I64 && t->dtype != LINNET_I32)) return -1;
    for (int64_t i = 0; i < n; ++i)
        out[i] = t->dtype == LINNET_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
    return (int)n;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

static bool slice(const lg_step *s, box *b) {
    const linnet_device_tensor *x = &s->inputs[0], *y = &s->outputs[0];
    int64_t starts[MOST_DIMS], axes[MOST_DIMS], steps[MOST_DIMS], step[LINNET_MAX_RANK];
    const int n = list(s, "starts", 1, starts), n_axes = list(s, "axes", 3, axes), n_steps = list(s, "steps", 4, steps);
    if (n < 0 || n_axes < 0 || n_steps < 0) return false;
    for (int d = 0; d < x->rank; ++d) step[d] = 1;
    for (int k = 0; k < n; ++k) {
        const int d = n_axes > 0 ? lg_axis(axes[k], x->rank) : k;
        const int64_t size = x->shape[d], by = n_steps > 0 ? steps[k] : 1;
        int64_t start = starts[k] < 0 ? starts[k] + size : starts[k];
        start = by > 0 ? clamp(start, 0, size) : clamp(start, size > 0 ? 0 : -1, size - 1);
        step[d] = by;
        if (y->shape[d] > 0) b->x_at += start * stride(x, d);
    }
    for (int d = 0; d < x->rank; ++d)
        append(b, y->shape[d], y->shape[d] > 1 ? step[d] * stride(x, d) : 0, stride(y, d));
    return true;
}

static void depth(const lg_step *s, box *b, bool to_space) {
    const linnet_device_tensor *deep = to_space ? &s->inputs[0] : &s->outputs[0];
    const linnet_device_tensor *flat = to_space ? &s->outputs[0] : &s->inputs[0];
    const int c = lg_axis(lg_integer(s, "axis", 0), 4), h = c == 1 ? 2 : 1, w = c == 1 ? 3 : 2;
    const int64_t n = lg_integer(s, "block", 1), few = flat->shape[c], at = stride(deep, c);
    const bool dcr = lg_integer(s, "depth_mode", 0) == 0;
    const int64_t sizes[6] = {flat->shape[0], few, deep->shape[h], n, deep->shape[w], n};
    const int64_t deeps[6] = {stride(deep, 0), dcr ? at : at * n * n, stride(deep, h), dcr ? at * n * few : at * n,
                              stride(deep, w), dcr ? at * few : at};
    const int64_t flats[6] = {stride(flat, 0), stride(flat, c),     stride(flat, h) * n,
                              stride(flat, h), stride(flat, w) * n, stride(flat, w)};
    for (int d = 0; d < 6; ++d) append(b, sizes[d], to_space ? deeps[d] : flats[d], to_space ? flats[d] : deeps[d]);
}

/* Makes box `part` of the step. Concat and split have several boxes, other copies one. Returns false if the box cannot
 * be planned. */
static bool make_box(const lg_step *s, int part, box *b) {
    const linnet_device_tensor *x = &s->inputs[0], *y = &s->outputs[0];
    const int kind = (int)lg_integer(s, "kind", 0), axis = lg_axis(lg_integer(s, "axis", 0), y->rank);
    memset(b, 0, sizeof *b);
    switch (kind) {
    case IDENTITY:
    case RESHAPE:
    case SQUEEZE:
    case UNSQUEEZE:
    case BITCAST: append(b, lg_count(y), 1, 1); return lg_count(x) == lg_count(y);
    case TRANSPOSE:
        for (int d = 0; d < y->rank; ++d) {
            const bool given = lg_items(s, "perm") > 0;
            append(b, y->shape[d], stride(x, given ? lg_axis(lg_item(s, "perm", d, 0), x->rank) : x->rank - 1 - d),
                   stride(y, d));
        }
        return true;
    case CONCAT:
        for (int i = 0; i < part; ++i) b->y_at += s->inputs[i].shape[axis] * y->strides[axis];
        /* The axes are in the order of y in memory, so that neighbouring work items write neighbouring elements. */
        for (int k = 0; k < y->rank; ++k) {
            const int d = lg_order(y, k);
            append(b, s->inputs[part].shape[d], s->inputs[part].strides[d], y->strides[d]);
        }
        return true;
    case SPLIT:
        for (int i = 0; i < part; ++i) b->x_at += s->outputs[i].shape[axis] * stride(x, axis);
        for (int d = 0; d < x->rank; ++d)
            append(b, s->outputs[part].shape[d], stride(x, d), stride(&s->outputs[part], d));
        return true;
    case SLICE: return slice(s, b);
    case EXPAND:
        for (int d = 0; d < y->rank; ++d) {
            const int own = d - (y->rank - x->rank);
            append(b, y->shape[d], own < 0 || x->shape[own] == 1 ? 0 : stride(x, own), stride(y, d));
        }
        return true;
    case TILE:
        for (int d = 0; d < x->rank; ++d) {
            append(b, x->shape[d] > 0 ? y->shape[d] / x->shape[d] : 0, 0, stride(y, d) * x->shape[d]);
            append(b, x->shape[d], stride(x, d), stride(y, d));
        }
        return true;
    default: depth(s, b, kind == TO_SPACE); return true;
    }
}

static int parts_of(const lg_step *s) {
    const int64_t kind = lg_integer(s, "kind", 0);
    return kind == CONCAT ? s->n_inputs : kind == SPLIT ? s->n_outputs : 1;
}

static bool fits(const lg_step *s) {
    if (s->has_map) return false;
    for (int i = 0; i < s->n_outputs; ++i)
        if (lg_bytes_of(s->outputs[i].dtype) == 0 || lg_count(&s->outputs[i]) > INT32_MAX) return false;
    return lg_bytes_of(s->inputs[0].dtype) == lg_bytes_of(s->outputs[0].dtype) && lg_count(&s->inputs[0]) <= INT32_MAX;
}

bool lg_can_copy(const lg_step *s) {
    box b;
    if (!fits(s) || lg_integer(s, "kind", 0) == PAD) return false;
    for (int i = 0; i < parts_of(s); ++i)
        if (!make_box(s, i, &b) || b.rank > KERNEL_DIMS) return false;
    return true;
}

static void define_elements(lg_launch *launch, int bytes) {
    lg_put(&launch->source, "#define E_T ln_u%d\n", 8 * bytes);
}

void lg_build_copy(const lg_step *s, lg_plan *plan) {
    const int64_t kind = lg_integer(s, "kind", 0);
    box b;
    for (int i = 0; i < parts_of(s); ++i) {
        int64_t count = 1;
        make_box(s, i, &b);
        for (int d = 0; d < b.rank; ++d) count *= b.size[d];
        if (count == 0) continue;
        lg_launch *launch = lg_add(plan, "lg_copy");
        if (launch == NULL) return;
        if (b.rank == 0) b.size[b.rank] = 1, b.x[b.rank] = b.y[b.rank] = 0, b.rank++;
        define_elements(launch, lg_bytes_of(s->outputs[0].dtype));
        lg_define(launch, "RANK", b.rank);
        lg_pass(launch, LG_INPUT, kind == CONCAT ? i : 0);
        lg_pass(launch, LG_OUTPUT, kind == SPLIT ? i : 0);
        lg_pass_integer(launch, count);
        lg_pass_integer(launch, b.x_at);
        lg_pass_integer(launch, b.y_at);
        for (int d = 0; d < b.rank; ++d) {
            lg_pass_integer(launch, b.size[d]);
            lg_pass_integer(launch, b.x[d]);
            lg_pass_integer(launch, b.y[d]);
        }
        lg_put_file(launch, "copy");
        lg_range(launch, count, 1, 1);
        plan->failed |= launch->source.failed;
    }
}

/* Reads the padding at the begin and the end of each axis. Returns false if it is not known. */
static bool pads_of(const lg_step *s, int64_t *begin, int64_t *end) {
    int64_t pads[MOST_DIMS], axes[MOST_DIMS];
    const int rank = s->inputs[0].rank, n = list(s, "pads", 1, pads), n_axes = list(s, "axes", 3, axes);
    if (n < 0 || n_axes < 0) return false;
    const int count = n_axes > 0 ? n_axes : rank;
    if (n != 2 * count) return false;
    for (int d = 0; d < rank; ++d) begin[d] = end[d] = 0;
    for (int k = 0; k < count; ++k) {
        const int d = n_axes > 0 ? lg_axis(axes[k], rank) : k;
        begin[d] = pads[k], end[d] = pads[count + k];
    }
    return true;
}

/* Computes the bits of v as f16. Returns false if f16 cannot represent v exactly. */
static bool half_of(double v, uint64_t *bits) {
    int exponent = 0;
    const uint64_t sign = signbit(v) ? 0x8000 : 0;
    if (isinf(v)) {
        *bits = sign | 0x7c00;
        return true;
    }
    const double part = frexp(fabs(v), &exponent); /* 0.5 <= part < 1 */
    const bool small = exponent < -13;             /* below the normal numbers of f16 */
    const double digits = ldexp(part, small ? exponent + 24 : 11);
    if (v != v || exponent > 16 || digits != floor(digits)) return false;
    *bits = sign | (small ? (uint64_t)digits : ((uint64_t)(exponent + 14) << 10) + ((uint64_t)digits - 1024));
    return true;
}

/* Computes the bits of the element with the value of the attribute `value`, a double. Returns false if the dtype would
 * round the value. */
static bool constant_of(const lg_step *s, uint64_t *bits) {
    const double value = lg_real(s, "value", 0);
    const float single = (float)value;
    uint32_t word;
    *bits = 0;
    memcpy(&word, &single, sizeof word);
    if (value == 0) return true;
    switch (s->inputs[0].dtype) {
    case LINNET_F32: *bits = word; return true;
    case LINNET_F16: return half_of(value, bits);
    case LINNET_BF16: *bits = word >> 16; return (double)single == value && (word & 0xffff) == 0;
    case LINNET_F64: memcpy(bits, &value, sizeof value); return true;
    default: return false;
    }
}

bool lg_can_pad(const lg_step *s) {
    int64_t begin[LINNET_MAX_RANK], end[LINNET_MAX_RANK];
    uint64_t bits;
    if (!fits(s) || lg_integer(s, "kind", 0) != PAD || s->inputs[0].rank > KERNEL_DIMS || !pads_of(s, begin, end))
        return false;
    return !lg_absent(s, 2) || constant_of(s, &bits);
}

void lg_build_pad(const lg_step *s, lg_plan *plan) {
    const linnet_device_tensor *x = &s->inputs[0], *y = &s->outputs[0];
    int64_t begin[LINNET_MAX_RANK], end[LINNET_MAX_RANK], mode = lg_integer(s, "pad_mode", CONSTANT);
    if (lg_count(y) == 0) return;
    lg_launch *launch = lg_add(plan, "lg_pad");
    if (launch == NULL || !pads_of(s, begin, end)) {
        plan->failed = true;
        return;
    }
    uint64_t value = 0;
    define_elements(launch, lg_bytes_of(x->dtype));
    lg_define(launch, "RANK", 0);
    lg_define(launch, "MODE", mode);
    lg_pass(launch, LG_INPUT, 0);
    if (lg_absent(s, 2)) {
        plan->failed |= !constant_of(s, &value);
        lg_pack(plan, &value, sizeof value); /* little-endian, as all devices are */
        lg_pass(launch, LG_PACKED, 0);
    } else {
        lg_pass(launch, LG_INPUT, 2);
    }
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, lg_count(y));
    for (int k = 0; k < KERNEL_DIMS; ++k) {
        const int d = k - (KERNEL_DIMS - x->rank);
        int64_t total = 1, before = 0, low = 0, size = 1, at = 0;
        if (d >= 0) {
            total = y->shape[d], at = stride(x, d);
            low = begin[d] < 0 ? -begin[d] : 0, before = begin[d] > 0 ? begin[d] : 0;
            size = x->shape[d] - low - (end[d] < 0 ? -end[d] : 0);
            if (size <= 0) size = 0, before = total;
        }
        const int64_t numbers[] = {total, before, low, size, at};
        for (int i = 0; i < 5; ++i) lg_pass_integer(launch, numbers[i]);
    }
    lg_put_file(launch, "copy");
    lg_range(launch, lg_count(y), 1, 1);
    plan->failed |= launch->source.failed;
}
