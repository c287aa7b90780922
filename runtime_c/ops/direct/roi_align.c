/* roi_align.c - shape rule and kernel of `roi_align` (K. He et al., Mask R-CNN, 2017). The samples along the two axes
   are found separately. An average is then a sum of few pixels, each multiplied by its weights along both axes. */
#include "kernel/common/index.h"
#include "kernel/cost.h"
#include "kernel/step.h"

#include <math.h>

enum { MOST_SAMPLES = 4096, MOST_BINS = 1 << 16 };

linnet_status ln_infer_roi_align(const ln_infer *infer) {
    static const char expected[3][22] = {"x, f32 [n, c, h, w]", "rois, f32 [r, 4]", "batch, i64 [r]"};
    const ln_roi_align_attributes *a = infer->attributes;
    const ln_tensor *in = infer->inputs;
    ln_tensor *y = &infer->outputs[0];
    for (int i = 0; i < 3; i++) {
        static const int ranks[3] = {4, 2, 1};
        int64_t dim = in[i].rank > 0 ? in[i].dims[i == 1] : -1, wanted = i == 1 ? 4 : i == 2 ? y->dims[0] : dim;
        if (in[i].dtype != (i == 2 ? LINNET_I64 : LINNET_F32) || (in[i].rank >= 0 && in[i].rank != ranks[i]) ||
            (dim >= 0 && wanted >= 0 && dim != wanted)) {
            char text[96];
            ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "roi_align: the dtype or shape of operand %d is wrong", i);
            ln_expected(infer->error, "%s", expected[i]);
            return ln_got(infer->error, "%s %s", linnet_dtype_name(in[i].dtype),
                          ln_shape_text(in[i].dims, in[i].rank, text, sizeof text));
        }
        if (i == 1) y->dims[0] = in[i].rank == 2 ? in[i].dims[0] : -1;
    }
    if (a->height < 1 || a->height > MOST_BINS || a->width < 1 || a->width > MOST_BINS || a->sampling_ratio < 0 ||
        a->sampling_ratio > MOST_SAMPLES) {
        ln_fail(infer->error, LINNET_BAD_ATTRIBUTE, "roi_align: the number of bins or samples is out of range");
        return ln_expected(infer->error, "1 to %d bins, 0 to %d samples", MOST_BINS, MOST_SAMPLES);
    }
    y->dtype = LINNET_F32;
    y->rank = 4;
    if (y->dims[0] < 0 && in[2].rank == 1) y->dims[0] = in[2].dims[0];
    y->dims[1] = in[0].rank == 4 ? in[0].dims[1] : -1;
    y->dims[2] = a->height;
    y->dims[3] = a->width;
    return LINNET_OK;
}

/* Counts four samples of four pixels for each output element, or more if sampling_ratio says so. */
void ln_count_roi_align(const ln_call *call, ln_counts *counts) {
    const int64_t ratio = ((const ln_roi_align_attributes *)call->attributes)->sampling_ratio;
    counts->work[LN_RATE_MOVE] += 4 * (double)ln_max(ratio * ratio, 4) * (double)ln_count(&call->outputs[0]);
}

/* Two adjacent pixels along one axis and their weights; both weights are 0 if the sample is outside the image. */
typedef struct sample {
    int32_t pixel[2];
    float weight[2];
} sample;

static LN_PLANNING linnet_status configure(ln_call *call) {
    const ln_roi_align_attributes *a = call->attributes;
    call->work[0] = call->outputs[0].dims[0];
    call->scratch_thread = 2 * (size_t)(a->sampling_ratio > 0 ? a->sampling_ratio : MOST_SAMPLES) * sizeof(sample);
    return LINNET_OK;
}

static void place_samples(float start, float bin, int64_t number, int64_t count, int64_t size, sample *out) {
    for (int64_t s = 0; s < count; s++, out++) {
        float at = start + (float)number * bin + ((float)s + 0.5f) * bin / (float)count;
        *out = (sample){{0, 0}, {0, 0}};
        if (!(at >= -1 && at <= (float)size)) continue; /* also excludes NaN */
        at = at > 0 ? at : 0;
        int64_t low = ln_min((int64_t)at, size - 1);
        float part = low >= size - 1 ? 0 : at - (float)low;
        *out = (sample){{(int32_t)low, (int32_t)ln_min(low + 1, size - 1)}, {1 - part, part}};
    }
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase;
    const ln_roi_align_attributes *a = call->attributes;
    const ln_tensor *x = &call->inputs[0], *rois = &call->inputs[1], *y = &call->outputs[0];
    const int64_t most = a->sampling_ratio > 0 ? a->sampling_ratio : MOST_SAMPLES;
    const float scale = (float)a->spatial_scale, offset = a->half_pixel ? 0.5f : 0;
    sample *rows = (sample *)(void *)(b->thread_scratch + (size_t)thread * b->thread_stride), *columns = rows + most;
    for (int64_t r = begin; r < end; r++) {
        const float *roi = (const float *)b->inputs[1] + r * rois->strides[0];
        const int64_t batch = ((const int64_t *)b->inputs[2])[r * call->inputs[2].strides[0]];
        if (batch < 0 || batch >= x->dims[0])
            return ln_index_error(b, "batch index of a region", batch, 0, x->dims[0] - 1);
        float start[2], bin[2]; /* y, x */
        int64_t count[2];
        for (int axis = 0; axis < 2; axis++) {
            start[axis] = roi[(1 - axis) * rois->strides[1]] * scale - offset;
            float extent = roi[(3 - axis) * rois->strides[1]] * scale - offset - start[axis];
            if (!a->half_pixel && !(extent >= 1)) extent = 1;
            bin[axis] = extent / (float)y->dims[2 + axis];
            count[axis] = a->sampling_ratio;
            if (count[axis] > 0) continue;
            count[axis] = bin[axis] < 1e9f ? (int64_t)ceilf(bin[axis] > 0 ? bin[axis] : 0)
                          : bin[axis] > 0  ? 1000000000
                                           : 0;
            if (count[axis] > most) return ln_index_error(b, "number of samples per bin", count[axis], 0, most);
        }
        for (int64_t bins = 0; bins < y->dims[2] * y->dims[3]; bins++) {
            int64_t i = bins / y->dims[3], j = bins % y->dims[3];
            if (j == 0) place_samples(start[0], bin[0], i, count[0], x->dims[2], rows);
            place_samples(start[1], bin[1], j, count[1], x->dims[3], columns);
            for (int64_t c = 0; c < x->dims[1]; c++) {
                const float *plane = (const float *)b->inputs[0] + batch * x->strides[0] + c * x->strides[1];
                float sum = 0, greatest = count[0] * count[1] > 0 ? -INFINITY : 0;
                for (int64_t p = 0; p < 2 * count[0]; p++) {
                    const float by = rows[p / 2].weight[p % 2];
                    const float *line = plane + rows[p / 2].pixel[p % 2] * x->strides[2];
                    float across = 0;
                    for (int64_t q = 0; q < count[1]; q++) {
                        const float u = columns[q].weight[0] * line[columns[q].pixel[0] * x->strides[3]];
                        const float v = columns[q].weight[1] * line[columns[q].pixel[1] * x->strides[3]];
                        if (a->kind == LN_ROI_ALIGN_KIND_AVG) {
                            across += u + v;
                            continue;
                        }
                        greatest = by * u > greatest ? by * u : greatest;
                        greatest = by * v > greatest ? by * v : greatest;
                    }
                    sum += by * across;
                }
                sum /= (float)ln_max(count[0] * count[1], 1);
                ((float *)
                     b->outputs[0])[r * y->strides[0] + c * y->strides[1] + i * y->strides[2] + j * y->strides[3]] =
                    a->kind == LN_ROI_ALIGN_KIND_MAX ? greatest : sum;
            }
        }
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_roi_align = {.configure = configure, .run = run};
