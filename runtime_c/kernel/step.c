/* step.c - functions for kernels and extensions: memory at plan time, index errors, and the operands and attributes of
   a step. The functions linnet_step_* are public (linnet_ext.h). */
#include "kernel/step.h"

#include "base/memory.h"
#include "linnet_ext.h"

#include <string.h>

void *ln_call_state(ln_call *call, size_t bytes) { return ln_pool_alloc(call->plan, bytes); }

linnet_status ln_index_error(const ln_buffers *b, const char *operand, int64_t index, int64_t low, int64_t high) {
    struct ln_run_error *e = b->error;
    if (e != NULL && atomic_exchange(&e->raised, 1) == 0) {
        e->operand = operand;
        e->index = index;
        e->low = low;
        e->high = high;
    }
    return LINNET_INDEX_OUT_OF_RANGE;
}

const char *linnet_step_op(const linnet_step *step) { return step->call->op->name; }
const char *linnet_step_name(const linnet_step *step) { return step->name; }
int linnet_step_input_count(const linnet_step *step) { return step->call->n_inputs; }
int linnet_step_output_count(const linnet_step *step) { return step->call->n_outputs; }

linnet_status linnet_step_input(const linnet_step *step, int i, linnet_tensor_info *out) {
    if (i < 0 || i >= step->call->n_inputs) return LINNET_INVALID_ARGUMENT;
    return ln_tensor_info(&step->call->inputs[i], "", out);
}

linnet_status linnet_step_output(const linnet_step *step, int i, linnet_tensor_info *out) {
    if (i < 0 || i >= step->call->n_outputs) return LINNET_INVALID_ARGUMENT;
    return ln_tensor_info(&step->call->outputs[i], "", out);
}

static const ln_attribute *find_attribute(const linnet_step *step, const char *name) {
    const ln_op *op = step->call->op;
    for (int i = 0; name != NULL && i < op->n_attributes; ++i)
        if (strcmp(ln_names + ln_op_attribute(op, i)->name, name) == 0) return ln_op_attribute(op, i);
    return NULL;
}

const int64_t *linnet_step_integers(const linnet_step *step, const char *attribute, int *count) {
    const ln_attribute *a = find_attribute(step, attribute);
    if (a == NULL || count == NULL || a->type == LN_ATTRIBUTE_FLOAT || a->type == LN_ATTRIBUTE_FLOATS ||
        a->type == LN_ATTRIBUTE_BYTES)
        return NULL;
    const char *at = (const char *)step->call->attributes + a->offset;
    if (a->type != LN_ATTRIBUTE_INTS) {
        *count = 1;
        return (const int64_t *)at;
    }
    *count = (int)((const ln_ints *)at)->n;
    return ((const ln_ints *)at)->v;
}

const double *linnet_step_floats(const linnet_step *step, const char *attribute, int *count) {
    const ln_attribute *a = find_attribute(step, attribute);
    if (a == NULL || count == NULL || (a->type != LN_ATTRIBUTE_FLOAT && a->type != LN_ATTRIBUTE_FLOATS)) return NULL;
    const char *at = (const char *)step->call->attributes + a->offset;
    if (a->type == LN_ATTRIBUTE_FLOAT) {
        *count = 1;
        return (const double *)at;
    }
    *count = (int)((const ln_floats *)at)->n;
    return ((const ln_floats *)at)->v;
}
