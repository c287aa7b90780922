/* copy_operands.c - the parameters of `copy`, from attributes or operands: lists, axes, slices, pads, sizes of a split.
 * The shape rules (copy_infer.c) and the plans (copy_plan.c) read them here. */
#include "ops/copy_operands.h"

#include "kernel/common/index.h"
#include "kernel/infer.h"

int ln_copy_list(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int64_t *v, int64_t *n) {
    if (ln_copy_given(inputs, n_inputs, i)) {
        int known = ln_int_operand(&inputs[i], v);
        *n = known;
        return known >= 0 ? LN_COPY_KNOWN : known == -2 ? LN_COPY_BAD : LN_COPY_UNKNOWN;
    }
    *n = attribute->n;
    if (attribute->n > 2 * LN_MAX_RANK) return LN_COPY_BAD;
    for (int64_t k = 0; k < attribute->n; k++) v[k] = attribute->v[k];
    return LN_COPY_KNOWN;
}

int ln_copy_axes(const ln_tensor *inputs, int n_inputs, int i, const ln_ints *attribute, int rank, int *axes, int *n) {
    int64_t v[2 * LN_MAX_RANK], count;
    int known = ln_copy_list(inputs, n_inputs, i, attribute, v, &count);
    if (known != LN_COPY_KNOWN) return known;
    *n = count == 0 ? rank : (int)count;
    uint32_t seen = 0;
    for (int k = 0; k < *n; k++) {
        axes[k] = count == 0 ? k : ln_axis(v[k], rank);
        if (axes[k] < 0 || seen >> axes[k] & 1u || *n > rank) return LN_COPY_BAD;
        seen |= 1u << axes[k];
    }
    return LN_COPY_KNOWN;
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

int ln_copy_slice(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *start, int64_t *step,
                  int64_t *count) {
    const ln_tensor *x = &inputs[0];
    int64_t starts[2 * LN_MAX_RANK], ends[2 * LN_MAX_RANK], steps[2 * LN_MAX_RANK], n_starts, n_ends, n_steps;
    int axes[2 * LN_MAX_RANK], n_axes, n;
    for (int d = 0; d < x->rank; d++) {
        start[d] = 0;
        step[d] = 1;
        count[d] = x->dims[d];
    }
    int known_starts = ln_copy_list(inputs, n_inputs, 1, &a->starts, starts, &n_starts);
    int known_ends = ln_copy_list(inputs, n_inputs, 2, &a->ends, ends, &n_ends);
    int known_axes = ln_copy_axes(inputs, n_inputs, 3, &a->axes, x->rank, axes, &n_axes);
    int known_steps = ln_copy_list(inputs, n_inputs, 4, &a->steps, steps, &n_steps);
    if (known_starts == LN_COPY_BAD || known_ends == LN_COPY_BAD || known_axes == LN_COPY_BAD ||
        known_steps == LN_COPY_BAD)
        return LN_COPY_BAD;
    if (known_axes == LN_COPY_UNKNOWN) {
        for (int d = 0; d < x->rank; d++) count[d] = -1;
        return LN_COPY_UNKNOWN;
    }
    if (known_starts != LN_COPY_KNOWN || known_ends != LN_COPY_KNOWN || known_steps != LN_COPY_KNOWN) {
        for (int k = 0; k < n_axes; k++) count[axes[k]] = -1; /* the other axes keep their size */
        return LN_COPY_UNKNOWN;
    }
    n = (int)n_starts;
    /* The default axes are the first ones. */
    if (n_ends != n || n > n_axes || (n_axes != n && (ln_copy_given(inputs, n_inputs, 3) || a->axes.n > 0)) ||
        (n_steps != n && n_steps != 0))
        return LN_COPY_BAD;
    for (int k = 0; k < n; k++) {
        int d = axes[k];
        int64_t by = n_steps ? steps[k] : 1, size = x->dims[d], s = starts[k], e = ends[k];
        if (by == 0) return LN_COPY_BAD;
        step[d] = by;
        if (size < 0) {
            count[d] = -1;
            continue;
        }
        if (s < 0) s += size;
        if (e < 0) e += size;
        if (by > 0) {
            s = clamp(s, 0, size);
            e = clamp(e, 0, size);
            count[d] = e > s ? (e - s - 1) / by + 1 : 0;
        } else {
            s = clamp(s, size > 0 ? 0 : -1, size - 1);
            e = clamp(e, -1, size - 1);
            count[d] = s > e ? (int64_t)((uint64_t)(s - e - 1) / (0 - (uint64_t)by)) + 1 : 0;
        }
        start[d] = count[d] > 0 ? s : 0;
        if (count[d] <= 1) step[d] = 1; /* the step may be huge if no second element is taken */
    }
    return LN_COPY_KNOWN;
}

int ln_copy_pads(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int64_t *begin, int64_t *end) {
    int64_t v[2 * LN_MAX_RANK], n;
    int axes[2 * LN_MAX_RANK], n_axes, rank = inputs[0].rank;
    for (int d = 0; d < rank; d++) begin[d] = end[d] = 0;
    int known = ln_copy_list(inputs, n_inputs, 1, &a->pads, v, &n);
    int known_axes = ln_copy_axes(inputs, n_inputs, 3, &a->axes, rank, axes, &n_axes);
    if (known != LN_COPY_KNOWN || known_axes != LN_COPY_KNOWN)
        return known == LN_COPY_BAD || known_axes == LN_COPY_BAD ? LN_COPY_BAD : LN_COPY_UNKNOWN;
    if (n != 2 * n_axes) return LN_COPY_BAD;
    const int64_t limit = (int64_t)1 << 48;
    for (int k = 0; k < n_axes; k++) {
        begin[axes[k]] = v[k];
        end[axes[k]] = v[n_axes + k];
        if (v[k] < -limit || v[k] > limit || v[n_axes + k] < -limit || v[n_axes + k] > limit) return LN_COPY_BAD;
    }
    return LN_COPY_KNOWN;
}

int64_t ln_copy_split_size(const ln_copy_attributes *a, const ln_tensor *inputs, int n_inputs, int n_outputs,
                           int64_t size, int i) {
    if (ln_copy_given(inputs, n_inputs, 1)) /* the list may be longer than ln_int_operand reads */
        return inputs[1].data && ln_count(&inputs[1]) == n_outputs ? ln_known_int(&inputs[1], i) : -1;
    if (a->shape.n == n_outputs) return a->shape.v[i];
    if (size < 0) return -1;
    int64_t chunk = ln_ceil_div(size, n_outputs); /* ONNX 18: the last part is smaller */
    return clamp(size - (int64_t)i * chunk, 0, chunk);
}
