/* test_reduce.c - every kind of `reduce` against a plain definition, then the fast kernels against the reference, over
 * both layouts; and gather, scatter, top_k, cumsum and nonzero against known results. */
#include "compare.h"

#include "base/layout.h"
#include "dispatch/dispatch.h"
#include "generated/op_table.h"
#include "kernel/infer.h"

static void reduce_case(int dtype, int kind, int rank, const int64_t *dims, uint32_t mask, bool keep, int layout,
                        bool specials) {
    int64_t axes[LN_MAX_RANK], n = 0;
    for (int d = 0; d < rank; d++)
        if (mask >> d & 1u) axes[n++] = random_below(2) ? d : d - rank;
    ln_reduce_attributes a = {.kind = kind, .axes = {axes, n}, .keep_dims = keep, .noop_with_empty_axes = 1};
    test_case t = {.name = "reduce",
                   .op = LN_OP_REDUCE,
                   .attributes = &a,
                   .n_inputs = 1,
                   .n_outputs = 1,
                   .y_layout = random_below(2),
                   .tolerance = -1}; /* there is one order of summation, so the bits are the same everywhere */
    char name[96];
    snprintf(name, sizeof name, "reduce kind %d dtype %d mask %x of [%d, %d, %d, %d] layout %d", kind, dtype, mask,
             (int)dims[0], (int)dims[1], (int)dims[2], (int)dims[3], layout);
    t.name = name;
    t.inputs[0] = tensor_of(dtype, layout, rank, dims);
    ln_quant *q = quant_of(1, 0, 0.01, 0.05, -9, 9);
    if (dtype == LINNET_I8 || dtype == LINNET_U8 || dtype == LINNET_I16) {
        t.inputs[0].quant = q;
        const bool extreme = kind == LN_REDUCE_KIND_MAX || kind == LN_REDUCE_KIND_MIN;
        t.outputs[0].dtype = extreme && random_below(2) ? LINNET_NONE : LINNET_F32; /* extremes may stay integers */
    }
    int64_t count = ln_count(&t.inputs[0]);
    float *values = malloc((size_t)ln_max(1, count) * sizeof *values);
    if (dtype == LINNET_F32) {
        for (int64_t i = 0; i < count; i++) {
            values[i] = (float)random_unit() + (kind == LN_REDUCE_KIND_LOG_SUM ? 1.01f : 0.0f);
            if (specials && random_below(40) == 0)
                values[i] = random_below(2) ? NAN : random_below(2) ? INFINITY : -INFINITY;
            /* Zeros of both signs are equal, so the order of elements must not decide which of them is the extreme. */
            if (!specials && kind == LN_REDUCE_KIND_MAX && random_below(2)) values[i] = random_below(2) ? 0.0f : -0.0f;
            if (!specials && kind == LN_REDUCE_KIND_MAX && values[i] > 0) values[i] = -values[i];
        }
        t.given[0] = true;
        t.values[0] = values;
    }
    compare(&t);
    free(values);
    quant_free(q);
}

static void test_kinds(void) {
    static const int dtypes[] = {LINNET_F32, LINNET_F16, LINNET_BF16, LINNET_I8,
                                 LINNET_U8,  LINNET_I16, LINNET_I32,  LINNET_F64};
    static const int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33, 64, 65, 70};
    for (int kind = 0; kind <= LN_REDUCE_KIND_LOG_SUM_EXP; kind++)
        for (int round = 0; round < 40; round++) {
            int64_t dims[4];
            for (int d = 0; d < 4; d++) dims[d] = sizes[random_below(d == 0 ? 4 : 10)];
            reduce_case(round < 24 ? LINNET_F32 : dtypes[round % 8], kind, 4, dims, (uint32_t)random_below(16),
                        random_below(2), random_below(2), round % 5 == 4 && kind <= LN_REDUCE_KIND_MIN);
        }
    int64_t tall[4] = {1, 1, 3000, 5}, wide[4] = {1, 1, 3, 9000}, pool[4] = {2, 130, 7, 7}, empty[4] = {2, 0, 3, 1};
    for (int kind = 0; kind <= LN_REDUCE_KIND_SUM_SQUARE; kind++) {
        if (kind == LN_REDUCE_KIND_PROD) continue;
        for (int64_t few = 1; few <= 5; few++) { /* sums of a few floats that lie together, and of a few rows */
            const int64_t together[] = {2, 3, 7, few}, rows[] = {3, few, 5, 17};
            reduce_case(LINNET_F32, kind, 4, together, 8, true, 0, false);
            reduce_case(LINNET_F32, kind, 4, rows, 2, true, 0, false);
        }
        reduce_case(LINNET_F32, kind, 4, tall, 4, true, 0, false);
        reduce_case(LINNET_F32, kind, 4, wide, 8, true, 0, false);
        reduce_case(LINNET_F32, kind, 4, pool, 12, false, 1, false);
        reduce_case(LINNET_F32, kind, 4, pool, 13, false, 1, false);
        reduce_case(LINNET_F32, kind, 4, pool, 15, false, 1, false);
        reduce_case(LINNET_F32, kind, 4, empty, 2, false, 0, false);
        for (int dtype = 0; dtype < 8; dtype++) {
            reduce_case(dtypes[dtype], kind, 4, wide, 8, true, 0, false);
            reduce_case(dtypes[dtype], kind, 4, pool, 12, true, 1, false);
            reduce_case(dtypes[dtype], kind, 4, pool, 4, true, 0, false);
        }
    }
    for (int round = 0; round < 40; round++) { /* argmax and argmin, with ties and NaN */
        static float values[8 * 9 * 20 * 9];
        ln_reduce_attributes a = {.kind = LN_REDUCE_KIND_ARGMAX + round % 2,
                                  .axes = {(int64_t[]){random_below(4)}, 1},
                                  .keep_dims = round / 2 % 2,
                                  .select_last_index = round / 4 % 2};
        test_case t = {
            .name = "arg", .op = LN_OP_REDUCE, .attributes = &a, .n_inputs = 1, .n_outputs = 1, .y_layout = 0};
        t.inputs[0] = TENSOR(LINNET_F32, random_below(2), 1 + random_below(8), 1 + random_below(9),
                             1 + random_below(20), 1 + random_below(9));
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            values[i] = round > 30 && random_below(30) == 0 ? NAN : (float)random_below(7);
        t.given[0] = true, t.values[0] = values;
        compare(&t);
    }
    for (int i = 3; i < 6; i++) reduce_case(dtypes[i], LN_REDUCE_KIND_MEAN, 4, pool, 12, false, 1, false);
}

/* Quantizes with scales and zero points that are operands. */
static void test_quantize(void) {
    static const int to[] = {LINNET_I8, LINNET_U8, LINNET_I16, LINNET_U16},
                     from[] = {LINNET_F32, LINNET_F16, LINNET_BF16};
    static const float scales[] = {0.013f, 0.5f, 1e-30f, 3e30f, 0.0f, INFINITY, NAN, -0.25f};
    static float values[2 * 30 * 8 * 40];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = random_below(50) == 0 ? NAN : random_below(50) == 0 ? -INFINITY : (float)random_unit() * 4;
    for (int round = 0; round < 96; round++) {
        const int dtype = to[round % 4], x = from[round / 4 % 3];
        const float scale = scales[round / 12];
        ln_quantize_attributes a = {.dtype = dtype, .axis = 1};
        test_case t = {.name = "quantize",
                       .op = LN_OP_QUANTIZE,
                       .attributes = &a,
                       .n_inputs = 2 + round % 2,
                       .n_outputs = 1,
                       .y_layout = random_below(2),
                       .tolerance = -1};
        t.inputs[0] = TENSOR(x, random_below(2), 1 + random_below(2), 1 + random_below(30), 1 + random_below(8),
                             1 + random_below(40));
        t.inputs[1] = TENSOR(LINNET_F32, LN_LAYOUT_DENSE, 1);
        t.inputs[2] = TENSOR(dtype, LN_LAYOUT_DENSE, 1);
        if (x == LINNET_F32) t.given[0] = true, t.values[0] = values;
        t.given[1] = true, t.values[1] = &scale;
        compare(&t);
    }
}

/* ---- known results of small ops, whose only kernel is the reference ---- */

static bool answer(const char *name, int op, const void *attributes, int n_inputs, const ln_tensor *inputs,
                   int n_outputs, const void *const *expected, linnet_status status, int64_t *dims_out) {
    ln_memory memory;
    ln_pool pool;
    ln_memory_init(&memory, NULL);
    ln_pool_init(&pool, &memory);
    ln_tensor out[3];
    memset(out, 0, sizeof out);
    const void *data[5];
    guarded got[3];
    ln_infer_facts facts = ln_no_facts;
    ln_infer infer = {.op = &ln_ops[op],
                      .attributes = attributes,
                      .n_inputs = n_inputs,
                      .n_outputs = n_outputs,
                      .inputs = inputs,
                      .outputs = out,
                      .facts = &facts};
    linnet_status s = ln_ops[op].infer(&infer);
    bool ok = s == LINNET_OK;
    for (int i = 0; i < n_inputs; i++) data[i] = inputs[i].data;
    for (int o = 0; o < n_outputs; o++) {
        ln_bound_output(&facts, &out[o]);
        ln_set_layout(&out[o], 0);
        got[o] = guarded_new(bytes_of(&out[o]), false);
    }
    ln_call call = {.op = &ln_ops[op],
                    .attributes = attributes,
                    .n_inputs = n_inputs,
                    .n_outputs = n_outputs,
                    .inputs = inputs,
                    .outputs = out,
                    .inner = out,
                    .features = machine_features(),
                    .threads = 1,
                    .phases = 1,
                    .work = {1, 1},
                    .grain = 1,
                    .plan = &pool};
    const ln_kernel *k = ln_choose_kernel(&call, false, NULL);
    ok = ok && k && (!k->code->configure || k->code->configure(&call) == LINNET_OK);
    if (ok) {
        char *scratch = aligned_alloc(64, ln_round_up(call.scratch_thread + call.scratch_bytes + 64, 64));
        int64_t output_dims[3 * LN_MAX_RANK] = {0};
        bool dependent = ln_ops[op].flags & LN_OP_DATA_DEPENDENT;
        for (int o = 0; o < n_outputs; o++) memcpy(output_dims + o * LN_MAX_RANK, out[o].dims, sizeof out[o].dims);
        ln_buffers b = {
            .inputs = data,
            .outputs = (void *[]){got[0].data, n_outputs > 1 ? got[1].data : NULL, n_outputs > 2 ? got[2].data : NULL},
            .scratch = scratch,
            .thread_scratch = scratch,
            .output_dims = dependent ? output_dims : NULL};
        s = k->code->run(&call, &b, 0, 0, call.work[0], 0);
        ok = s == status;
        if (dims_out) memcpy(dims_out, output_dims, 2 * sizeof(int64_t));
        for (int o = 0; o < n_outputs; o++) memcpy(out[o].dims, output_dims + o * LN_MAX_RANK, sizeof out[o].dims);
        for (int o = 0; o < n_outputs && ok && status == LINNET_OK; o++)
            ok = !expected[o] || memcmp(got[o].data, expected[o], bytes_of(&out[o])) == 0;
        free(scratch);
    }
    for (int o = 0; o < n_outputs; o++) guarded_free(&got[o]);
    ln_pool_free(&pool);
    comparisons++;
    if (!ok) {
        fprintf(stderr, "FAIL %s\n", name);
        failures++;
    }
    return ok;
}

static ln_tensor with(ln_tensor t, const void *data) {
    t.data = data;
    return t;
}
#define F32(...)                                                                                                       \
    (const float[]) { __VA_ARGS__ }
#define I64(...)                                                                                                       \
    (const int64_t[]) { __VA_ARGS__ }

static void test_answers(void) {
    ln_tensor x = with(TENSOR(LINNET_F32, 0, 3, 2), F32(1, 2, 3, 4, 5, 6));
    answer("gather take", LN_OP_GATHER, &(ln_gather_attributes){.kind = LN_GATHER_KIND_TAKE, .from_end = true}, 2,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 3), I64(2, -3, 1))}, 1, (const void *[]){F32(5, 6, 1, 2, 3, 4)},
           LINNET_OK, NULL);
    answer("gather take of columns", LN_OP_GATHER,
           &(ln_gather_attributes){.kind = LN_GATHER_KIND_TAKE, .from_end = true, .axis = -1}, 2,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 1), I64(1))}, 1, (const void *[]){F32(2, 4, 6)}, LINNET_OK,
           NULL);
    answer("gather out of range", LN_OP_GATHER, &(ln_gather_attributes){.kind = LN_GATHER_KIND_TAKE, .from_end = true},
           2, (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 1), I64(3))}, 1, (const void *[]){NULL},
           LINNET_INDEX_OUT_OF_RANGE, NULL);
    answer("gather of labels", LN_OP_GATHER, &(ln_gather_attributes){.kind = LN_GATHER_KIND_TAKE}, 2,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 1), I64(-1))}, 1, (const void *[]){NULL},
           LINNET_INDEX_OUT_OF_RANGE, NULL);
    answer("gather below range", LN_OP_GATHER, &(ln_gather_attributes){.kind = LN_GATHER_KIND_TAKE, .from_end = true},
           2, (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 1), I64(INT64_MIN))}, 1, (const void *[]){NULL},
           LINNET_INDEX_OUT_OF_RANGE, NULL);
    answer("gather elements", LN_OP_GATHER,
           &(ln_gather_attributes){.kind = LN_GATHER_KIND_ELEMENTS, .from_end = true, .axis = 1}, 2,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 3, 2), I64(0, 0, 1, 0, -1, 1))}, 1,
           (const void *[]){F32(1, 1, 4, 3, 6, 6)}, LINNET_OK, NULL);
    answer("gather nd", LN_OP_GATHER, &(ln_gather_attributes){.kind = LN_GATHER_KIND_ND, .from_end = true}, 2,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 2, 2), I64(0, 1, -1, 0))}, 1, (const void *[]){F32(2, 5)},
           LINNET_OK, NULL);
    answer("gather nd in batches", LN_OP_GATHER,
           &(ln_gather_attributes){.kind = LN_GATHER_KIND_ND, .from_end = true, .batch_dims = 1}, 2,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 3, 1), I64(1, 0, 1))}, 1, (const void *[]){F32(2, 3, 6)},
           LINNET_OK, NULL);
    answer("scatter elements, added", LN_OP_SCATTER,
           &(ln_scatter_attributes){.kind = LN_SCATTER_KIND_ELEMENTS, .axis = 0, .reduction = LN_SCATTER_REDUCTION_ADD},
           3,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 2, 2), I64(1, 1, 1, -1)),
                         with(TENSOR(LINNET_F32, 0, 2, 2), F32(10, 20, 30, 40))},
           1, (const void *[]){F32(1, 2, 43, 24, 5, 46)}, LINNET_OK, NULL);
    answer("scatter nd", LN_OP_SCATTER, &(ln_scatter_attributes){.kind = LN_SCATTER_KIND_ND}, 3,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 2, 1), I64(2, 0)),
                         with(TENSOR(LINNET_F32, 0, 2, 2), F32(10, 20, 30, 40))},
           1, (const void *[]){F32(30, 40, 3, 4, 10, 20)}, LINNET_OK, NULL);
    answer("scatter out of range", LN_OP_SCATTER, &(ln_scatter_attributes){.kind = LN_SCATTER_KIND_ND}, 3,
           (ln_tensor[]){x, with(TENSOR(LINNET_I64, 0, 1, 1), I64(7)), with(TENSOR(LINNET_F32, 0, 1, 2), F32(1, 2))}, 1,
           (const void *[]){NULL}, LINNET_INDEX_OUT_OF_RANGE, NULL);
    ln_tensor v = with(TENSOR(LINNET_F32, 0, 7), F32(3, 1, 4, 1, 5, 4, -2));
    answer("top_k", LN_OP_TOP_K, &(ln_top_k_attributes){.axis = -1, .largest = 1, .sorted = 1}, 2,
           (ln_tensor[]){v, with(TENSOR(LINNET_I64, 0, 1), I64(4))}, 2,
           (const void *[]){F32(5, 4, 4, 3), I64(4, 2, 5, 0)}, LINNET_OK, NULL);
    answer("top_k, smallest", LN_OP_TOP_K, &(ln_top_k_attributes){.axis = 0, .largest = 0, .sorted = 1}, 2,
           (ln_tensor[]){v, with(TENSOR(LINNET_I64, 0, 1), I64(3))}, 2, (const void *[]){F32(-2, 1, 1), I64(6, 1, 3)},
           LINNET_OK, NULL);
    ln_tensor axis = with(TENSOR(LINNET_I64, 0, 1), I64(0));
    answer("cumsum", LN_OP_CUMSUM, &(ln_cumsum_attributes){0}, 2, (ln_tensor[]){x, axis}, 1,
           (const void *[]){F32(1, 2, 4, 6, 9, 12)}, LINNET_OK, NULL);
    answer("cumsum, exclusive and reversed", LN_OP_CUMSUM, &(ln_cumsum_attributes){.exclusive = 1, .reverse = 1}, 2,
           (ln_tensor[]){x, axis}, 1, (const void *[]){F32(8, 10, 5, 6, 0, 0)}, LINNET_OK, NULL);
    answer("range", LN_OP_RANGE, NULL, 3,
           (ln_tensor[]){with(TENSOR(LINNET_I64, 0, 1), I64(10)), with(TENSOR(LINNET_I64, 0, 1), I64(3)),
                         with(TENSOR(LINNET_I64, 0, 1), I64(-3))},
           1, (const void *[]){I64(10, 7, 4)}, LINNET_OK, NULL);
    answer("shape", LN_OP_SHAPE, &(ln_shape_attributes){.start = -1, .end = INT64_MAX}, 1, &x, 1,
           (const void *[]){I64(2)}, LINNET_OK, NULL);
    int64_t dims[2];
    ln_tensor sparse = with(TENSOR(LINNET_F32, 0, 2, 3), F32(0, 7, 0, NAN, 0, -1));
    answer("nonzero", LN_OP_NONZERO, NULL, 1, &sparse, 1, (const void *[]){I64(0, 1, 1, 1, 0, 2)}, LINNET_OK, dims);
    comparisons++;
    failures += !(dims[0] == 2 && dims[1] == 3);
    /* Three boxes: the second overlaps the first by 1/3, the third is separate. */
    ln_tensor boxes = with(TENSOR(LINNET_F32, 0, 1, 3, 4), F32(0, 0, 2, 2, 0, 1, 2, 3, 5, 5, 6, 6));
    ln_tensor scores = with(TENSOR(LINNET_F32, 0, 1, 1, 3), F32(0.5f, 0.75f, 0.25f));
    ln_tensor most = with(TENSOR(LINNET_I64, 0, 1), I64(3)), low = with(TENSOR(LINNET_F32, 0, 1), F32(0.3f));
    ln_tensor high = with(TENSOR(LINNET_F32, 0, 1), F32(0.4f));
    answer("nms", LN_OP_NMS, &(ln_nms_attributes){0}, 4, (ln_tensor[]){boxes, scores, most, low}, 3,
           (const void *[]){I64(0, 0, 1, 0, 0, 2), F32(0.75f, 0.25f), I64(2)}, LINNET_OK, dims);
    comparisons++;
    failures += !(dims[0] == 2 && dims[1] == 3);
    answer("nms, a score too low", LN_OP_NMS, &(ln_nms_attributes){0}, 5,
           (ln_tensor[]){boxes, scores, most, high, high}, 3,
           (const void *[]){I64(0, 0, 1, 0, 0, 0), F32(0.75f, 0.5f), I64(2)}, LINNET_OK, dims);
    answer("nms, padded", LN_OP_NMS, &(ln_nms_attributes){.padded = 1}, 4, (ln_tensor[]){boxes, scores, most, low}, 3,
           (const void *[]){I64(0, 0, 1, 0, 0, 2, 0, 0, 0), F32(0.75f, 0.25f, 0), I64(2)}, LINNET_OK, NULL);
    ln_tensor image = with(TENSOR(LINNET_F32, 0, 1, 1, 2, 2), F32(0, 1, 2, 3));
    ln_tensor roi = with(TENSOR(LINNET_F32, 0, 1, 4), F32(0, 0, 2, 2)), batch = with(TENSOR(LINNET_I64, 0, 1), I64(0));
    ln_roi_align_attributes align = {.height = 1, .width = 1, .sampling_ratio = 1, .spatial_scale = 1, .half_pixel = 1};
    answer("roi_align", LN_OP_ROI_ALIGN, &align, 3, (ln_tensor[]){image, roi, batch}, 1, (const void *[]){F32(1.5f)},
           LINNET_OK, NULL);
    align.half_pixel = 0;
    answer("roi_align, the last pixel", LN_OP_ROI_ALIGN, &align, 3, (ln_tensor[]){image, roi, batch}, 1,
           (const void *[]){F32(3)}, LINNET_OK, NULL);
    batch.data = I64(1);
    answer("roi_align of no such image", LN_OP_ROI_ALIGN, &align, 3, (ln_tensor[]){image, roi, batch}, 1,
           (const void *[]){NULL}, LINNET_INDEX_OUT_OF_RANGE, NULL);
    /* The first block of the paper's known results (Random123, kat_vectors): counter 0, key 0. */
    answer("random bits", LN_OP_RANDOM, &(ln_random_attributes){.shape = {I64(5), 1}}, 0, NULL, 1,
           (const void *[]){(const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0xf8e4cca4}}, LINNET_OK,
           NULL);
    /* The bits are the same on every machine; these are from an AMD EPYC. */
    ln_random_attributes noise = {.kind = LN_RANDOM_KIND_NORMAL, .seed = 1, .stream = 2, .shape = {I64(6), 1}};
    answer("random normal", LN_OP_RANDOM, &noise, 0, NULL, 1,
           (const void *[]){
               F32(0x1.945512p-2f, 0x1.e69df2p-3f, -0x1.17c082p+1f, 0x1.7d2764p+1f, -0x1.240ab4p-2f, 0x1.f030aep-10f)},
           LINNET_OK, NULL);
    ln_reduce_attributes arg = {.kind = LN_REDUCE_KIND_ARGMAX, .axes = {I64(0), 1}};
    answer("argmax", LN_OP_REDUCE, &arg, 1, &v, 1, (const void *[]){I64(4)}, LINNET_OK, NULL);
    ln_tensor tie = with(TENSOR(LINNET_F32, 0, 4), F32(1, 2, 2, 0));
    arg.select_last_index = 1;
    answer("argmax, the last", LN_OP_REDUCE, &arg, 1, &tie, 1, (const void *[]){I64(2)}, LINNET_OK, NULL);
    ln_reduce_attributes mean = {.kind = LN_REDUCE_KIND_MEAN, .axes = {I64(0), 1}};
    ln_tensor ints = with(TENSOR(LINNET_I32, 0, 3), ((const int32_t[]){-1, -2, -5}));
    answer("mean of integers truncates", LN_OP_REDUCE, &mean, 1, &ints, 1, (const void *[]){(const int32_t[]){-2}},
           LINNET_OK, NULL);
    ln_reduce_attributes lse = {.kind = LN_REDUCE_KIND_LOG_SUM_EXP, .axes = {I64(0), 1}};
    ln_tensor large = with(TENSOR(LINNET_F32, 0, 2), F32(1000, 1000));
    answer("log_sum_exp does not overflow", LN_OP_REDUCE, &lse, 1, &large, 1, (const void *[]){F32(1000.69314718f)},
           LINNET_OK, NULL);
    ln_tensor q = with(TENSOR(LINNET_F32, 0, 6), F32(0.25f, 0.75f, -100, 1e9f, NAN, 1.25f));
    answer(
        "quantize", LN_OP_QUANTIZE, &(ln_quantize_attributes){.dtype = LINNET_I8, .axis = 0}, 3,
        (ln_tensor[]){q, with(TENSOR(LINNET_F32, 0, 1), F32(0.5f)), with(TENSOR(LINNET_I8, 0, 1), (const int8_t[]){3})},
        1, (const void *[]){(const int8_t[]){3, 5, -128, 127, -128, 5}}, LINNET_OK, NULL);
    answer("dequantize by blocks", LN_OP_DEQUANTIZE, &(ln_dequantize_attributes){.axis = 0, .block = 2}, 2,
           (ln_tensor[]){with(TENSOR(LINNET_I8, 0, 4), (const int8_t[]){1, 2, 3, -4}),
                         with(TENSOR(LINNET_F32, 0, 2), F32(0.5f, 2))},
           1, (const void *[]){F32(0.5f, 1, 6, -8)}, LINNET_OK, NULL);
    answer("cast", LN_OP_CAST, &(ln_cast_attributes){.dtype = LINNET_U8}, 1,
           (ln_tensor[]){with(TENSOR(LINNET_F32, 0, 5), F32(-1.5f, 300, 2.9f, NAN, -0.0f))}, 1,
           (const void *[]){(const uint8_t[]){0, 255, 2, 0, 0}}, LINNET_OK, NULL);
    answer("cast of integers keeps the low bits", LN_OP_CAST, &(ln_cast_attributes){.dtype = LINNET_I8}, 1,
           (ln_tensor[]){with(TENSOR(LINNET_I64, 0, 2), I64(300, -129))}, 1,
           (const void *[]){(const int8_t[]){44, 127}}, LINNET_OK, NULL);
}

/* ---- cast, quantize and dequantize: the fast kernels give the bits of the references ---- */

static void test_conversions(void) {
    static const int stored[] = {LINNET_I8, LINNET_U8, LINNET_I16, LINNET_U16};
    for (int from = LINNET_F32; from <= LINNET_BOOL; from++)
        for (int to = LINNET_F32; to <= LINNET_BOOL; to++) {
            ln_cast_attributes a = {.dtype = to};
            test_case t = {.name = "cast",
                           .op = LN_OP_CAST,
                           .attributes = &a,
                           .n_inputs = 1,
                           .n_outputs = 1,
                           .tolerance = -1,
                           .y_layout = random_below(2),
                           .expect = from == LINNET_U64 ? NULL : "cast_any"};
            t.inputs[0] = TENSOR(from, random_below(2), 3, 1 + random_below(40), 1 + random_below(20));
            if (from == LINNET_BOOL) {
                static uint8_t bits[3 * 41 * 21];
                for (size_t i = 0; i < sizeof bits; i++) bits[i] = i % 3 == 0;
                t.given[0] = true, t.values[0] = bits;
            }
            compare(&t);
        }
    for (int round = 0; round < 64; round++) {
        int dtype = stored[round % 4], axis = random_below(3), mode = round / 4 % 4, storing = round / 16 % 2;
        int64_t dims[3] = {1 + random_below(5), 1 + random_below(20), 1 + random_below(50)};
        int64_t slices = mode == 1 ? dims[axis] : 1;
        float scales[64];
        ln_quant *q = quant_of(1, 0, 0.001, 0.02, -10, 10);
        for (int i = 0; i < 64; i++) scales[i] = 0.002f + 0.0001f * (float)random_below(100);
        ln_quantize_attributes qa = {.dtype = dtype, .axis = axis};
        ln_dequantize_attributes da = {.axis = axis};
        test_case t = {.name = storing ? "quantize" : "dequantize",
                       .op = storing ? LN_OP_QUANTIZE : LN_OP_DEQUANTIZE,
                       .attributes = storing ? (void *)&qa : (void *)&da,
                       .n_inputs = mode == 3   ? 1
                                   : mode == 2 ? 2
                                               : 3,
                       .n_outputs = 1,
                       .tolerance = -1,
                       .y_layout = random_below(2),
                       .expect = storing ? "quantize_any" : "dequantize_any"};
        t.inputs[0] = tensor_of(storing ? (round % 3 ? LINNET_F32 : LINNET_F16) : dtype, random_below(2), 3, dims);
        t.inputs[1] = TENSOR(LINNET_F32, 0, slices);
        t.inputs[2] = TENSOR(dtype, 0, slices);
        t.given[1] = true, t.values[1] = scales;
        t.constant[2] = round / 32 % 2;
        if (mode == 3) *(storing ? &t.outputs[0].quant : &t.inputs[0].quant) = q;
        compare(&t);
        quant_free(q);
    }
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    test_kinds();
    test_quantize();
    test_conversions();
    test_answers();
    return report("test_reduce");
}
