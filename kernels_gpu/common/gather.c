/* gather.c - gather and scatter: the kernels of gather.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"

#include <stdlib.h>

enum { TAKE, BY_ELEMENT, TUPLE };          /* `kind` of gather */
enum { SCATTER_ELEMENTS, SCATTER_TUPLES }; /* `kind` of scatter */

static bool fits(const linnet_device_tensor *t) { return lg_bytes_of(t->dtype) > 0 && lg_count(t) <= INT32_MAX; }

static bool is_index(const linnet_device_tensor *t) {
    return (t->dtype == LINNET_I32 || t->dtype == LINNET_I64) && lg_count(t) <= INT32_MAX;
}

/* Tells whether the shapes agree except along the axis; with `shorter`, whether the second is no longer than the
 * first. */
static bool agree(const linnet_device_tensor *a, const linnet_device_tensor *b, int axis, bool shorter) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; ++d)
        if (d != axis && (shorter ? a->shape[d] < b->shape[d] : a->shape[d] != b->shape[d])) return false;
    return true;
}

bool lg_can_gather(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0], *indices = &s->inputs[1], *y = &s->outputs[0];
    const int64_t kind = lg_integer(s, "kind", TAKE);
    const int axis = lg_axis(lg_integer(s, "axis", 0), x->rank);
    if (s->has_map || !fits(x) || !fits(y) || !is_index(indices) || lg_count(x) == 0 || lg_count(y) == 0) return false;
    if (kind == TUPLE) return x->dtype == y->dtype;
    if (kind == BY_ELEMENT && !agree(x, indices, axis, true)) return false;
    if (x->dtype == y->dtype) return true;
    return kind == TAKE && lg_is_float(y->dtype) && (x->dtype == LINNET_I8 || x->dtype == LINNET_U8) &&
           x->scales != NULL &&
           (x->quant_scheme == LINNET_QUANT_TENSOR ||
            (x->quant_scheme == LINNET_QUANT_AXIS && lg_axis(x->quant_axis, x->rank) == axis));
}

/* Packs the sizes and strides of the axes to which the indices of a tuple refer. */
static size_t pack_axes(lg_plan *plan, const linnet_device_tensor *x, int first, int depth) {
    int32_t numbers[2 * LINNET_MAX_RANK];
    for (int k = 0; k < depth; ++k) {
        numbers[2 * k] = (int32_t)x->shape[first + k];
        numbers[2 * k + 1] = (int32_t)lg_shape_product(x, first + k + 1, x->rank);
    }
    return lg_pack(plan, numbers, 2 * (size_t)depth * sizeof *numbers);
}

/* Passes the sizes of lines along the axis, as the kernels name them; `lines` is a tensor that has as many lines. */
static void pass_lines(lg_plan *plan, lg_launch *launch, const linnet_device_tensor *x,
                       const linnet_device_tensor *lines, int axis, int64_t count) {
    const bool shorter = !agree(x, lines, axis, false);
    int32_t axes[2 * LINNET_MAX_RANK];
    int n = 0;
    for (int d = x->rank - 1; d >= 0 && shorter; --d) {
        if (d == axis) continue;
        axes[2 * n] = (int32_t)lines->shape[d];
        axes[2 * n++ + 1] = (int32_t)lg_shape_product(x, d + 1, x->rank);
    }
    const int64_t at = n > 0 ? (int64_t)lg_pack(plan, axes, 2 * (size_t)n * sizeof *axes) : 0;
    const int64_t numbers[] = {lg_shape_product(lines, 0, axis),
                               x->shape[axis],
                               count,
                               lg_shape_product(lines, axis + 1, lines->rank),
                               lg_shape_product(x, axis + 1, x->rank),
                               at,
                               n};
    lg_define(launch, "SHORTER", shorter);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
}

static void define_types(lg_launch *launch, const linnet_device_tensor *x, const linnet_device_tensor *indices,
                         bool from_end) {
    lg_define_operand(launch, "X", x->dtype);
    lg_put(&launch->source, "#define I_T %s\n", lg_type_of(indices->dtype));
    lg_define(launch, "FROM_END", from_end);
}

/* Packs the scales and zero points of x. */
static void pack_quantization(lg_plan *plan, lg_launch *launch, const linnet_device_tensor *x) {
    int32_t *zeros = calloc(x->quant_count, sizeof *zeros);
    if (zeros == NULL) {
        plan->failed = true;
        return;
    }
    for (int64_t i = 0; i < x->quant_count && x->zeros != NULL; ++i) zeros[i] = x->zeros[i];
    lg_define(launch, "SCALES", (int64_t)lg_pack(plan, x->scales, (size_t)x->quant_count * sizeof *x->scales));
    lg_define(launch, "ZEROS", (int64_t)lg_pack(plan, zeros, (size_t)x->quant_count * sizeof *zeros));
    lg_define(launch, "PER_INDEX", x->quant_count > 1);
    free(zeros);
}

void lg_build_gather(const lg_step *s, lg_plan *plan) {
    const linnet_device_tensor *x = &s->inputs[0], *indices = &s->inputs[1], *y = &s->outputs[0];
    const int64_t kind = lg_integer(s, "kind", TAKE);
    const int batch = (int)lg_integer(s, "batch_dims", 0), axis = lg_axis(lg_integer(s, "axis", 0), x->rank);
    lg_launch *launch = lg_add(plan, kind == TUPLE ? "lg_gather_nd" : "lg_gather");
    if (launch == NULL) return;
    const bool real = x->dtype != y->dtype;
    define_types(launch, x, indices, lg_integer(s, "from_end", 1) != 0);
    lg_define_operand(launch, "Y", y->dtype);
    lg_define(launch, "GATHER", kind != TUPLE);
    lg_define(launch, "TUPLES", kind == TUPLE);
    lg_define(launch, "ELEMENTS", kind == BY_ELEMENT);
    lg_define(launch, "REAL", real);
    lg_check_indices(plan, x->shape[kind == TUPLE ? batch : axis]);
    if (real) pack_quantization(plan, launch, x);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass(launch, LG_PACKED, 0);
    lg_pass_integer(launch, (int64_t)plan->status);
    if (kind == TUPLE) {
        const int depth = (int)indices->shape[indices->rank - 1];
        const int64_t block = lg_shape_product(x, batch + depth, x->rank), points = lg_count(indices) / depth;
        const int64_t batches = lg_shape_product(x, 0, batch);
        const int64_t numbers[] = {(int64_t)pack_axes(plan, x, batch, depth), depth, points, points / batches,
                                   lg_shape_product(x, batch, x->rank),       block};
        for (int i = 0; i < 6; ++i) lg_pass_integer(launch, numbers[i]);
    } else {
        const bool take = kind == TAKE;
        pass_lines(plan, launch, x, take ? x : indices, axis, take ? lg_count(indices) : indices->shape[axis]);
    }
    lg_put_file(launch, "gather");
    lg_range(launch, lg_count(y), 1, 1);
    plan->failed |= launch->source.failed;
}

bool lg_can_scatter(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0], *indices = &s->inputs[1], *updates = &s->inputs[2];
    const int axis = lg_axis(lg_integer(s, "axis", 0), x->rank);
    if (s->has_map || s->n_inputs < 3 || !fits(x) || !fits(updates) || !is_index(indices) || lg_count(updates) == 0 ||
        (x->dtype == LINNET_F64 && !s->machine->f64) || x->dtype != updates->dtype)
        return false;
    return lg_integer(s, "kind", 0) == SCATTER_TUPLES ||
           (agree(x, indices, axis, true) && lg_same_shape(indices, updates));
}

void lg_build_scatter(const lg_step *s, lg_plan *plan) {
    const linnet_device_tensor *x = &s->inputs[0], *indices = &s->inputs[1];
    const bool tuples = lg_integer(s, "kind", 0) == SCATTER_TUPLES;
    const int axis = lg_axis(lg_integer(s, "axis", 0), x->rank);
    lg_launch *launch = lg_add(plan, "lg_copy");
    if (launch == NULL) return;
    lg_put(&launch->source, "#define E_T ln_u%d\n", 8 * lg_bytes_of(x->dtype));
    lg_define(launch, "RANK", 1);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    const int64_t line[] = {lg_count(x), 0, 0, lg_count(x), 1, 1};
    for (int i = 0; i < 6; ++i) lg_pass_integer(launch, line[i]);
    lg_put_file(launch, "copy");
    lg_range(launch, lg_count(x), 1, 1);
    launch = lg_add(plan, tuples ? "lg_scatter_nd" : "lg_scatter");
    if (launch == NULL) return;
    define_types(launch, x, indices, true);
    lg_define(launch, "SCATTER", !tuples);
    lg_define(launch, "TUPLES", 0);
    lg_define(launch, "SCATTER_TUPLES", tuples);
    lg_define(launch, "REDUCTION", lg_integer(s, "reduction", 0));
    lg_check_indices(plan, x->shape[tuples ? 0 : axis]);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, LG_INPUT, 2);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass(launch, LG_PACKED, 0);
    lg_pass_integer(launch, (int64_t)plan->status);
    if (tuples) {
        const int depth = (int)indices->shape[indices->rank - 1];
        const int64_t block = lg_shape_product(x, depth, x->rank);
        const int64_t numbers[] = {(int64_t)pack_axes(plan, x, 0, depth), depth, lg_count(indices) / depth, block};
        for (int i = 0; i < 4; ++i) lg_pass_integer(launch, numbers[i]);
        lg_range(launch, block, 1, 1);
    } else {
        pass_lines(plan, launch, x, indices, axis, indices->shape[axis]);
        lg_range(launch, lg_count(indices) / indices->shape[axis], 1, 1);
    }
    lg_put_file(launch, "gather");
    plan->failed |= launch->source.failed;
}
