/* crop.c - a user op in C: `size` elements of the last dimension of an f32 tensor, from `start`.
 *
 *     cc -shared -fPIC -O2 -Iruntime_c/include examples/user_op/crop.c -o libcrop.so
 *     linnet run crop.lnt --user-ops ./libcrop.so ...
 *
 * The library needs the header alone. A C program registers the same table with linnet_model_config.user_ops. */
#include "linnet_ext.h"

#include <stdio.h>
#include <string.h>

static int fail(linnet_user_call *call, const char *problem) {
    snprintf(call->problem, call->problem_size, "%s", problem);
    return 1;
}

/* The attributes `start` (default 0) and `size`, of which the second must be there. */
static int range_of(const linnet_user_call *call, int64_t *start, int64_t *size) {
    const int64_t *given = linnet_user_integers(call, "start", NULL),
                  *wanted = linnet_user_integers(call, "size", NULL);
    *start = given ? *given : 0;
    *size = wanted ? *wanted : -1;
    return wanted && *start >= 0 && *size >= 0;
}

static int infer(linnet_user_call *call) {
    const linnet_operand *x = call->inputs[0];
    linnet_operand *y = call->outputs[0];
    int64_t start, size;
    if (!range_of(call, &start, &size)) return fail(call, "the attribute 'size' is missing, or a number is negative");
    if (x->dtype != LINNET_F32) return fail(call, "only f32 is supported");
    if (x->rank == 0) return fail(call, "a scalar has no dimension to crop");
    y->dtype = x->dtype;
    y->rank = x->rank;
    if (x->rank < 0) return 0; /* known later */
    memcpy(y->shape, x->shape, sizeof y->shape);
    y->shape[x->rank - 1] = size;
    if (x->shape[x->rank - 1] >= 0 && start + size > x->shape[x->rank - 1]) return fail(call, "the range is too long");
    return 0;
}

static int64_t rows_of(const linnet_operand *t) {
    int64_t rows = 1;
    for (int d = 0; d + 1 < t->rank; ++d) rows *= t->shape[d];
    return rows;
}

/* Rows are independent, so threads may share them. A thread is worth its start from 4096 bytes. */
static void prepare(linnet_user_call *call) {
    const linnet_operand *y = call->outputs[0];
    const int64_t bytes = y->shape[y->rank - 1] * (int64_t)sizeof(float);
    call->items = rows_of(y);
    call->grain = bytes > 0 ? 4096 / bytes + 1 : 1;
}

static int run(linnet_user_call *call) {
    const linnet_operand *x = call->inputs[0], *y = call->outputs[0];
    const int64_t from = x->shape[x->rank - 1], to = y->shape[y->rank - 1];
    int64_t start, size;
    range_of(call, &start, &size);
    if (to == 0) return 0;
    for (int64_t i = call->begin; i < call->end; ++i)
        memcpy((float *)y->data + i * to, (const float *)x->data + i * from + start, (size_t)to * sizeof(float));
    return 0;
}

static const linnet_user_op crop = {.struct_size = sizeof(linnet_user_op),
                                    .name = "com.example.crop",
                                    .version = 1,
                                    .flags = LINNET_USER_OP_EXACT,
                                    .least_inputs = 1,
                                    .most_inputs = 1,
                                    .least_outputs = 1,
                                    .most_outputs = 1,
                                    .infer = infer,
                                    .prepare = prepare,
                                    .run = run};

const linnet_user_op *const *linnet_extension_user_ops(int *count) {
    static const linnet_user_op *const ops[] = {&crop};
    *count = 1;
    return ops;
}
