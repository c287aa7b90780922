/* test_step.c - linnet_step_evaluate with operands that only a run knows: they must not count as known when the step
 * was planned, because no shape rule has checked them. */
#include "check.h"

#include "generated/op_table.h"
#include "kernel/cpu.h"
#include "kernel/step.h"

static const float x[6] = {1, 2, 3, 4, 5, 6};

/* The running sum of x [2, 3] along the axis; `known`: the plan knew the axis. */
static linnet_status sum_along(int64_t axis, bool known, float y[6], linnet_error *error) {
    static const ln_cumsum_attributes none = {0};
    const ln_tensor matrix = {.dtype = LINNET_F32, .rank = 2, .dims = {2, 3}, .strides = {3, 1}};
    const ln_tensor number = {.dtype = LINNET_I64, .data = known ? &axis : NULL};
    const ln_tensor tensors[3] = {matrix, number, matrix};
    const linnet_step step = {.name = "sum",
                              .call = {.op = &ln_ops[LN_OP_CUMSUM],
                                       .attributes = &none,
                                       .n_inputs = 2,
                                       .n_outputs = 1,
                                       .inputs = tensors,
                                       .outputs = tensors + 2,
                                       .inner = tensors + 2,
                                       .features = ln_detect_features()}};
    return linnet_step_evaluate(&step, (const void *const[]){x, &axis}, (void *const[]){y}, error);
}

static void operands_of_a_run(void) {
    static const float down[6] = {1, 2, 3, 5, 7, 9}, along[6] = {1, 3, 6, 4, 9, 15};
    linnet_error error;
    float y[6];
    for (int known = 0; known < 2; known++) {
        CHECK_INT(sum_along(0, known, y, &error), LINNET_OK);
        CHECK(memcmp(y, down, sizeof y) == 0);
        CHECK_INT(sum_along(-1, known, y, &error), LINNET_OK);
        CHECK(memcmp(y, along, sizeof y) == 0);
    }
    CHECK_INT(sum_along(-3, false, y, &error), LINNET_INDEX_OUT_OF_RANGE);
    CHECK_INT(sum_along(INT64_MAX, false, y, &error), LINNET_INDEX_OUT_OF_RANGE);
    CHECK_TEXT(error.op, "sum");
}

int main(void) {
    operands_of_a_run();
    return check_end("test_step");
}
