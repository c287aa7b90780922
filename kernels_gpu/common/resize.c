/* resize.c - launches the kernel of resize.inc, which resamples. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/lines.h"
#include "kernels_gpu/common/resize_tables.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

#include <stdlib.h>

enum { DIMS = 2 * LG_MOST_ACTIVE + 1 }; /* kept and resampled dimensions alternate; unused ones in front have size 1 */

bool lg_can_resize(const lg_step *s) {
    lg_resize r;
    const linnet_device_tensor *x = &s->inputs[0];
    if (!lg_can_store(s) || x->dtype != s->result.dtype || lg_type_of(x->dtype) == NULL || !lg_lines_fit(s))
        return false;
    if (x->dtype == LINNET_F64 || (x->dtype == LINNET_I32 && !s->machine->f64)) return false; /* sums are f64 */
    const bool known = lg_is_float(x->dtype) || x->dtype == LINNET_I8 || x->dtype == LINNET_U8 ||
                       x->dtype == LINNET_I16 || x->dtype == LINNET_I32;
    return known && lg_resize_open(&r, s);
}

/* Writes the sizes of y as the kernel sees them. */
static void dims_of(const linnet_device_tensor *y, const lg_resize *r, int64_t *out) {
    int at = DIMS - 1, next = r->n - 1;
    for (int i = 0; i < DIMS; ++i) out[i] = 1;
    for (int d = y->rank - 1; d >= 0; --d) {
        if (next >= 0 && r->axes[next].axis == d) {
            out[at - 1] = y->shape[d];
            at -= 2, --next;
        } else {
            out[at] *= y->shape[d];
        }
    }
    if (at > 0) { /* the dimensions in front of the first resampled axis */
        const int64_t front = out[at];
        out[at] = 1, out[0] *= front;
    }
}

void lg_build_resize(const lg_step *s, lg_plan *plan) {
    lg_resize r;
    int64_t dims[DIMS];
    const int dtype = s->inputs[0].dtype;
    lg_launch *launch = lg_add(plan, "lg_resize");
    if (launch == NULL) return;
    if (!lg_resize_open(&r, s) || !lg_resize_fill(&r, s)) {
        plan->failed = true;
        lg_resize_free(&r);
        return;
    }
    bool crops = false;
    for (int i = 0; i < r.n; ++i) crops |= r.axes[i].outside != NULL;
    lg_define(launch, "WIDE", dtype == LINNET_I32);
    lg_define(launch, "FLOATS", lg_is_float(dtype));
    if (!lg_is_float(dtype)) {
        const int bits = 8 * lg_bytes_of(dtype);
        lg_define(launch, "LEAST", dtype == LINNET_U8 ? 0 : -(INT64_C(1) << (bits - 1)));
        lg_define(launch, "MOST", dtype == LINNET_U8 ? 255 : (INT64_C(1) << (bits - 1)) - 1);
    }
    lg_define_operand(launch, "X", dtype);
    lg_define_operand(launch, "Y", dtype);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass(launch, LG_PACKED, 0);
    lg_pass_integer(launch, lg_count(&s->result));
    dims_of(&s->result, &r, dims);
    for (int i = 1; i < DIMS; ++i) lg_pass_integer(launch, dims[i]);
    /* For each axis: its input, its taps, and where its tables are, in elements of 4 bytes. */
    for (int i = 0; i < LG_MOST_ACTIVE; ++i) {
        static const int32_t zero = 0;
        static const float one = 1;
        const int of = i - (LG_MOST_ACTIVE - r.n);
        const lg_resize_axis *t = of >= 0 ? &r.axes[of] : NULL;
        const size_t bytes = t != NULL ? (size_t)(t->out * t->taps) * 4 : 4;
        const size_t index = lg_pack(plan, t != NULL ? t->index : &zero, bytes);
        const size_t weight = lg_pack(plan, t != NULL ? t->weight : &one, bytes);
        size_t outside = 0;
        lg_pass_integer(launch, t != NULL ? t->in : 1);
        lg_pass_integer(launch, t != NULL ? t->taps : 1);
        lg_pass_integer(launch, (int64_t)(index / 4));
        lg_pass_integer(launch, (int64_t)(weight / 4));
        int32_t *flags = crops ? calloc(bytes / 4, sizeof *flags) : NULL;
        for (int64_t o = 0; flags != NULL && t != NULL && t->outside != NULL && o < t->out; ++o)
            flags[o] = t->outside[o];
        if (flags != NULL) outside = lg_pack(plan, flags, bytes);
        plan->failed |= crops && flags == NULL;
        free(flags);
        lg_pass_integer(launch, (int64_t)(outside / 4));
    }
    lg_pass_integer(launch, r.joint && dtype != LINNET_I32);
    lg_pass_integer(launch, crops);
    lg_pass_real(launch, lg_real(s, "extrapolation_value", 0));
    lg_put_file(launch, "resize");
    lg_range(launch, lg_count(&s->result), 1, 1);
    lg_resize_free(&r);
}
