/* user_ops.c - a shared library of user ops, for tests. tests/c/test_user.c compiles it in. */
#include "linnet_ext.h"

#include <stdio.h>
#include <string.h>

static int fail(linnet_user_call *call, const char *problem) {
    snprintf(call->problem, call->problem_size, "%s", problem);
    return 1;
}

static int64_t count_of(const linnet_operand *t) {
    int64_t count = 1;
    for (int d = 0; d < t->rank; ++d) count *= t->shape[d];
    return count;
}

/* com.example.scale: y = x * factor, by threads, through scratch memory. */
static int scale_infer(linnet_user_call *call) {
    int64_t count = 0;
    if (!linnet_user_floats(call, "factor", &count) || count != 1) return fail(call, "the attribute factor is missing");
    const linnet_operand *x = call->inputs[0];
    linnet_operand *y = call->outputs[0];
    if (x->dtype != LINNET_F32) return fail(call, "x is not f32");
    y->dtype = x->dtype;
    y->rank = x->rank;
    memcpy(y->shape, x->shape, sizeof y->shape);
    return 0;
}

static void scale_prepare(linnet_user_call *call) {
    call->items = call->inputs[0]->rank > 0 ? call->inputs[0]->shape[0] : 1;
    call->scratch_size = 64;
}

static int scale_run(linnet_user_call *call) {
    const linnet_operand *x = call->inputs[0];
    const float factor = (float)*linnet_user_floats(call, "factor", NULL);
    int64_t row = 1;
    for (int d = 1; d < x->rank; ++d) row *= x->shape[d];
    memset(call->scratch, 0x5a, call->scratch_size);
    memcpy(call->scratch, &factor, sizeof factor);
    for (int64_t i = call->begin * row; i < call->end * row; ++i) {
        float own;
        memcpy(&own, call->scratch, sizeof own);
        ((float *)call->outputs[0]->data)[i] = ((const float *)x->data)[i] * own;
    }
    return 0;
}

/* com.example.negate: no shape rule, any number of outputs, which are all -x. */
static int negate_run(linnet_user_call *call) {
    const int64_t count = count_of(call->inputs[0]);
    if (call->inputs[0]->dtype != LINNET_F32) return fail(call, "x is not f32");
    for (int o = 0; o < call->output_count; ++o)
        if (call->outputs[o]->dtype != LINNET_F32 || count_of(call->outputs[o]) != count)
            return fail(call, "an output is not like x");
    for (int o = 0; o < call->output_count; ++o)
        for (int64_t i = 0; i < count; ++i)
            ((float *)call->outputs[o]->data)[i] = -((const float *)call->inputs[0]->data)[i];
    return 0;
}

/* com.example.broken: does what its attribute `how` says, to its only output; without it, a copy of a scalar. */
enum {
    INFER_FAILS = 1,
    WRONG_DTYPE,
    NO_DTYPE,
    WRONG_RANK,
    HUGE_RANK,
    NEGATIVE,
    TOO_LARGE,
    OPEN,
    RUN_FAILS,
    HUGE_SCRATCH
};

static int64_t how(const linnet_user_call *call) {
    const int64_t *value = linnet_user_integers(call, "how", NULL);
    return value ? *value : 0;
}

static int broken_infer(linnet_user_call *call) {
    linnet_operand *y = call->outputs[0];
    y->dtype = how(call) == WRONG_DTYPE ? LINNET_I32 : how(call) == NO_DTYPE ? 77 : LINNET_F32;
    y->rank = how(call) == WRONG_RANK ? 1 : how(call) == HUGE_RANK ? 9 : 2;
    y->shape[0] = how(call) == NEGATIVE ? -7 : how(call) == TOO_LARGE ? INT64_MAX : how(call) == OPEN ? -1 : 2;
    y->shape[1] = 3;
    return how(call) == INFER_FAILS ? fail(call, "told to fail") : 0;
}

static void broken_prepare(linnet_user_call *call) {
    if (how(call) == HUGE_SCRATCH) call->scratch_size = SIZE_MAX / 2;
}

static int broken_run(linnet_user_call *call) {
    if (how(call) == RUN_FAILS) {
        memset(call->problem, 'x', call->problem_size); /* no NUL */
        return -5;
    }
    for (int64_t i = count_of(call->outputs[0]); i-- > 0;) ((float *)call->outputs[0]->data)[i] = 0;
    return 0;
}

/* com.example.describe: writes what it can see of the node's attributes into its output, u8 of the length `length`. */
static int describe_infer(linnet_user_call *call) {
    const int64_t *length = linnet_user_integers(call, "length", NULL);
    call->outputs[0]->dtype = LINNET_U8;
    call->outputs[0]->rank = 1;
    call->outputs[0]->shape[0] = length ? *length : 0;
    return 0;
}

static int describe_run(linnet_user_call *call) {
    char *to = call->outputs[0]->data;
    const size_t size = (size_t)call->outputs[0]->shape[0];
    size_t used = 0, length = 0;
    int64_t count;
    int type;
    const char *name;
    if (size == 0) return fail(call, "there is no room");
    memset(to, 0, size);
    used += (size_t)snprintf(to, size, "version %d;", (int)call->version);
    for (int i = 0; used < size && (name = linnet_user_attribute(call, i, &type, &count)) != NULL; ++i) {
        used += (size_t)snprintf(to + used, size - used, " %s:%d[%d]", name, type, (int)count);
        for (int64_t k = 0; used < size && k < (count < 0 ? 1 : count); ++k) {
            if (type == LINNET_USER_INTEGERS)
                used += (size_t)snprintf(to + used, size - used, " %lld",
                                         (long long)linnet_user_integers(call, name, NULL)[k]);
            else if (type == LINNET_USER_FLOATS)
                used += (size_t)snprintf(to + used, size - used, " %g", linnet_user_floats(call, name, NULL)[k]);
            else if (linnet_user_text(call, name, k, &length))
                used += (size_t)snprintf(to + used, size - used, " '%s'/%d", linnet_user_text(call, name, k, NULL),
                                         (int)length);
        }
    }
    return linnet_user_integers(call, "none", &count) || linnet_user_floats(call, "length", &count) ||
           linnet_user_text(call, "length", 0, NULL) || linnet_user_text(call, NULL, 0, NULL);
}

/* com.example.positive: the elements of x [n] above 0, in order; without a second output, or with it their positions,
 * i64. Its attribute `lie` is added to the size that it reports. */
static int positive_infer(linnet_user_call *call) {
    if (call->inputs[0]->dtype != LINNET_F32 || (call->inputs[0]->rank >= 0 && call->inputs[0]->rank != 1))
        return fail(call, "x is not f32 [n]");
    for (int o = 0; o < call->output_count; ++o) {
        call->outputs[o]->dtype = o ? LINNET_I64 : LINNET_F32;
        call->outputs[o]->rank = 1;
        call->outputs[o]->shape[0] = linnet_user_at_most(call->inputs[0]->shape[0]);
    }
    return 0;
}

static int positive_run(linnet_user_call *call) {
    const linnet_operand *x = call->inputs[0];
    const int64_t *lie = linnet_user_integers(call, "lie", NULL);
    int64_t n = 0;
    for (int64_t i = 0; i < x->shape[0]; ++i) {
        if (!(((const float *)x->data)[i] > 0)) continue;
        ((float *)call->outputs[0]->data)[n] = ((const float *)x->data)[i];
        if (call->output_count > 1) ((int64_t *)call->outputs[1]->data)[n] = i;
        ++n;
    }
    for (int o = 0; o < call->output_count; ++o) call->outputs[o]->shape[0] = n + (lie ? *lie : 0);
    return 0;
}

static void positive_prepare(linnet_user_call *call) {
    const int64_t *items = linnet_user_integers(call, "items", NULL);
    if (items) call->items = *items;
}

/* com.example.permitted: y is like x, and each element is the precision that the plan permits to `run`, plus 10 times
 * the one that it permits to `prepare`. */
static int permitted_infer(linnet_user_call *call) {
    call->outputs[0]->dtype = LINNET_F32;
    call->outputs[0]->rank = call->inputs[0]->rank;
    memcpy(call->outputs[0]->shape, call->inputs[0]->shape, sizeof call->outputs[0]->shape);
    return linnet_user_precision(call) == LINNET_PRECISION_F32 ? 0 : fail(call, "a shape rule sees no plan");
}

static void permitted_prepare(linnet_user_call *call) { call->scratch_size = (size_t)linnet_user_precision(call); }

static int permitted_run(linnet_user_call *call) {
    for (int64_t i = count_of(call->outputs[0]); i-- > 0;)
        ((float *)call->outputs[0]->data)[i] = (float)(10 * (int)call->scratch_size + linnet_user_precision(call));
    return 0;
}

static const linnet_user_op ops[] = {
    {.struct_size = sizeof(linnet_user_op),
     .name = "com.example.scale",
     .version = 3,
     .flags = LINNET_USER_OP_IN_PLACE | LINNET_USER_OP_EXACT,
     .least_inputs = 1,
     .most_inputs = 1,
     .least_outputs = 1,
     .most_outputs = 1,
     .infer = scale_infer,
     .prepare = scale_prepare,
     .run = scale_run},
    {.struct_size = sizeof(linnet_user_op),
     .name = "com.example.negate",
     .version = 1,
     .least_inputs = 1,
     .most_inputs = 2,
     .least_outputs = 1,
     .most_outputs = -1,
     .run = negate_run},
    {.struct_size = sizeof(linnet_user_op),
     .name = "com.example.broken",
     .version = 1,
     .most_inputs = -1,
     .least_outputs = 1,
     .most_outputs = 1,
     .infer = broken_infer,
     .prepare = broken_prepare,
     .run = broken_run},
    {.struct_size = sizeof(linnet_user_op),
     .name = "com.example.describe",
     .version = 9,
     .most_inputs = -1,
     .least_outputs = 1,
     .most_outputs = 1,
     .infer = describe_infer,
     .run = describe_run},
    {.struct_size = sizeof(linnet_user_op),
     .name = "com.example.positive",
     .version = 1,
     .flags = LINNET_USER_OP_DECIDES_SIZES,
     .least_inputs = 1,
     .most_inputs = 1,
     .least_outputs = 1,
     .most_outputs = 2,
     .infer = positive_infer,
     .prepare = positive_prepare,
     .run = positive_run},
    {.struct_size = sizeof(linnet_user_op),
     .name = "com.example.permitted",
     .version = 1,
     .least_inputs = 1,
     .most_inputs = 1,
     .least_outputs = 1,
     .most_outputs = 1,
     .infer = permitted_infer,
     .prepare = permitted_prepare,
     .run = permitted_run},
};

const linnet_user_op *const *linnet_extension_user_ops(int *count) {
    static const linnet_user_op *const list[] = {&ops[0], &ops[1], &ops[2], &ops[3], &ops[4], &ops[5]};
    *count = 6;
    return list;
}
