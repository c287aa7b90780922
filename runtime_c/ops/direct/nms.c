/* nms.c - shape rule and kernel of `nms`: greedy non-maximum suppression, hard or soft (N. Bodla et al., Soft-NMS,
 * 2017). The number of selected boxes is known only at run time: the kernel reports the true dims, like nonzero. */
#include "kernel/cost.h"
#include "kernel/common/index.h"
#include "simd/math.h"

static linnet_status wrong(const ln_infer *infer, int operand, const char *expected) {
    char text[96];
    const ln_tensor *t = &infer->inputs[operand];
    ln_fail(infer->error, LINNET_SHAPE_MISMATCH, "nms: the dtype, shape or value of operand %d is wrong", operand);
    ln_expected(infer->error, "%s", expected);
    return ln_got(infer->error, "%s %s", linnet_dtype_name(t->dtype),
                  ln_shape_text(t->dims, t->rank, text, sizeof text));
}

static bool differ(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }

/* Returns the largest possible number of selected boxes. In each class, every box may be selected, or as many as the
 * operand with the maximum allows. */
static int64_t most_selected(const ln_infer *infer) {
    const ln_tensor *scores = &infer->inputs[1];
    const int64_t most = ln_count(scores);
    if (most <= 0 || infer->n_inputs <= 2 || !infer->inputs[2].data) return most;
    int64_t limit = ln_load_i64(infer->inputs[2].data, infer->inputs[2].dtype, 0), boxes = scores->dims[2];
    return most / boxes * (limit < 0 ? 0 : limit < boxes ? limit : boxes);
}

linnet_status ln_infer_nms(const ln_infer *infer) {
    const ln_nms_attributes *a = infer->attributes;
    const ln_tensor *boxes = &infer->inputs[0], *scores = &infer->inputs[1];
    bool boxes_known = boxes->rank >= 0, scores_known = scores->rank >= 0;
    if (boxes->dtype != LINNET_F32 || (boxes_known && (boxes->rank != 3 || differ(boxes->dims[2], 4))))
        return wrong(infer, 0, "boxes, f32 [batch, n, 4]");
    if (scores->dtype != LINNET_F32 || (scores_known && scores->rank != 3) ||
        (boxes_known && scores_known &&
         (differ(scores->dims[0], boxes->dims[0]) || differ(scores->dims[2], boxes->dims[1]))))
        return wrong(infer, 1, "scores, f32 [batch, classes, n]");
    for (int i = 2; i < infer->n_inputs; i++) {
        const ln_tensor *t = &infer->inputs[i];
        if (t->dtype == LINNET_NONE) continue;
        if (t->dtype != (i == 2 ? LINNET_I64 : LINNET_F32) || differ(ln_count(t), 1))
            return wrong(infer, i, i == 2 ? "max_outputs, i64 of 1 element" : "a threshold, f32 of 1 element");
    }
    int64_t rows = -1;
    if (a->padded) {
        const ln_tensor *most = infer->n_inputs > 2 ? &infer->inputs[2] : NULL;
        if (!most || most->dtype == LINNET_NONE) return wrong(infer, 1, "max_outputs, which `padded` requires");
        int64_t n = most->data ? ln_known_int(most, 0) : -1;
        if (most->data && (n < 0 || n > INT32_MAX)) return wrong(infer, 2, "max_outputs from 0 to 2^31 - 1");
        if (n >= 0 && scores_known && scores->dims[0] >= 0 && scores->dims[1] >= 0) {
            if (scores->dims[0] > INT32_MAX || scores->dims[1] > INT32_MAX ||
                scores->dims[0] * scores->dims[1] > INT64_MAX / 4 / ln_max(n, 1))
                return wrong(infer, 1, "fewer batches or classes");
            rows = scores->dims[0] * scores->dims[1] * n;
        }
    }
    for (int i = 0; i < infer->n_outputs; i++) {
        ln_tensor *y = &infer->outputs[i];
        y->dtype = i == 1 ? LINNET_F32 : LINNET_I64;
        y->rank = 2 - i;
        y->dims[0] = rows;
        y->dims[1] = 3;
    }
    if (infer->facts && !a->padded) infer->facts->most = most_selected(infer);
    return LINNET_OK;
}

/* Class by class, each box is compared with the boxes selected so far, in the worst case with all other boxes. */
void ln_count_nms(const ln_call *call, ln_counts *counts) {
    const ln_tensor *boxes = &call->inputs[0], *scores = &call->inputs[1];
    if (boxes->rank < 2) return;
    counts->work[LN_RATE_MOVE] += 10 * (double)ln_count(scores) + (double)ln_count(&call->outputs[0]);
}

typedef struct candidate {
    float score;
    int32_t seen; /* number of selected boxes with which the candidate has been compared */
    int64_t number;
} candidate;

/* Tells whether a comes before b. */
static bool before(const candidate *a, const candidate *b) {
    return a->score > b->score || (a->score == b->score && a->number < b->number);
}

static void sift_down(candidate *heap, int64_t n, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &heap[at])) return;
        candidate t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

/* A box as an interval along each axis, with the low end first. */
typedef struct box {
    float low[2], high[2], area;
} box;

static void load_boxes(const ln_tensor *t, const float *data, int64_t batch, bool center, box *out) {
    for (int64_t i = 0; i < t->dims[1]; i++, out++) {
        const float *from = data + batch * t->strides[0] + i * t->strides[1];
        for (int axis = 0; axis < 2; axis++) {
            float a = from[axis * t->strides[2]], b = from[(axis + 2) * t->strides[2]];
            out->low[axis] = center ? a - b / 2 : a < b ? a : b;
            out->high[axis] = center ? a + b / 2 : a < b ? b : a;
        }
        out->area = (out->high[0] - out->low[0]) * (out->high[1] - out->low[1]);
    }
}

/* Returns the intersection of two boxes over their union; 0 for boxes without an area. */
static float overlap(const box *a, const box *b) {
    float low0 = a->low[0] > b->low[0] ? a->low[0] : b->low[0],
          high0 = a->high[0] < b->high[0] ? a->high[0] : b->high[0];
    float low1 = a->low[1] > b->low[1] ? a->low[1] : b->low[1],
          high1 = a->high[1] < b->high[1] ? a->high[1] : b->high[1];
    if (!(high0 > low0 && high1 > low1 && a->area > 0 && b->area > 0)) return 0;
    float common = (high0 - low0) * (high1 - low1);
    return common / (a->area + b->area - common);
}

static LN_PLANNING linnet_status configure(ln_call *call) {
    call->scratch_bytes = (size_t)call->inputs[0].dims[1] * (sizeof(candidate) + 2 * sizeof(box));
    return LINNET_OK;
}

/* Selects boxes of one class of one batch entry into rows [at, at + most) of the outputs. Returns their number. */
static int64_t select_boxes(const ln_call *call, const ln_buffers *b, const float *scores, int64_t most, int64_t at) {
    const ln_nms_attributes *a = call->attributes;
    const float *iou = call->n_inputs > 3 ? b->inputs[3] : NULL, *limit = call->n_inputs > 4 ? b->inputs[4] : NULL;
    const int64_t count = call->inputs[0].dims[1], step = call->inputs[1].strides[2];
    const float iou_limit = iou ? *iou : 0, fall = a->soft_sigma > 0 ? -0.5f / (float)a->soft_sigma : 0;
    int64_t *selected = (int64_t *)b->outputs[0] + 3 * at, n = 0, chosen = 0;
    float *values = call->n_outputs > 1 ? b->outputs[1] : NULL;
    candidate *heap = b->scratch;
    box *boxes = (box *)(void *)(heap + count), *taken = boxes + count; /* taken: the selected boxes, in order */
    for (int64_t i = 0; i < count; i++)
        if (!limit || scores[i * step] > *limit) heap[n++] = (candidate){scores[i * step], 0, i};
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(heap, n, i);
    while (n > 0 && chosen < most) {
        candidate top = heap[0];
        bool alive = true, softened = false;
        for (int64_t j = chosen - 1; j >= top.seen && alive; j--) {
            float common = overlap(&boxes[top.number], &taken[j]);
            alive = !(common > iou_limit);
            if (fall != 0 && common > 0 && alive) {
                softened = true;
                top.score *= ln_exp_f(fall * common * common);
                alive = !limit || top.score > *limit;
            }
        }
        top.seen = (int32_t)chosen;
        if (alive && softened) { /* the candidate is put back into the heap */
            heap[0] = top;
        } else {
            if (alive) {
                selected[3 * chosen + 2] = top.number;
                taken[chosen] = boxes[top.number];
                if (values) values[at + chosen] = top.score;
                chosen++;
            }
            heap[0] = heap[--n];
        }
        sift_down(heap, n, 0);
    }
    return chosen;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    (void)phase, (void)begin, (void)end, (void)thread;
    const ln_tensor *scores = &call->inputs[1];
    const bool center = ((const ln_nms_attributes *)call->attributes)->center_point_box;
    const int64_t *most = call->n_inputs > 2 ? b->inputs[2] : NULL;
    int64_t boxes = scores->dims[2], rows = call->outputs[0].dims[0], at = 0;
    int64_t each = most ? ln_max(0, ln_min(*most, boxes)) : boxes, *selected = b->outputs[0];
    const int64_t pairs =
        boxes > 0 ? scores->dims[0] * scores->dims[1] : 0; /* operands may be NULL if there are no boxes */
    for (int64_t pair = 0; pair < pairs; pair++) {
        int64_t batch = pair / scores->dims[1];
        const float *line =
            (const float *)b->inputs[1] + batch * scores->strides[0] + pair % scores->dims[1] * scores->strides[1];
        if (pair % scores->dims[1] == 0)
            load_boxes(&call->inputs[0], b->inputs[0], batch, center, (box *)(void *)((candidate *)b->scratch + boxes));
        int64_t n = select_boxes(call, b, line, ln_min(each, rows - at), at);
        for (int64_t i = at; i < at + n; i++) {
            selected[3 * i] = batch;
            selected[3 * i + 1] = pair % scores->dims[1];
        }
        at += n;
    }
    if (call->n_outputs > 2 && b->outputs[2]) *(int64_t *)b->outputs[2] = at;
    if (((const ln_nms_attributes *)call->attributes)->padded) {
        memset(selected + 3 * at, 0, (size_t)(rows - at) * 3 * sizeof *selected);
        if (call->n_outputs > 1 && b->outputs[1])
            memset((float *)b->outputs[1] + at, 0, (size_t)(rows - at) * sizeof(float));
    } else if (b->output_dims) {
        b->output_dims[0] = at;
        if (call->n_outputs > 1) b->output_dims[LN_MAX_RANK] = at;
    }
    return LINNET_OK;
}

const ln_kernel_code ln_reference_nms = {.configure = configure, .run = run};
