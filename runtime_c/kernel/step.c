/* step.c - gives kernels memory at plan time and a way to report an index error; gives devices the operands and
   attributes of a step. The functions linnet_step_* are public (linnet_device.h). In a build without devices, nobody
   has a step to pass to them. */
#include "kernel/step.h"

#include "base/layout.h"
#include "base/memory.h"
#include "base/structs.h"
#include "kernel/map.h"
#include "kernel/parts.h"
#include "kernel/user.h"

#include <string.h>

void *ln_call_state(ln_call *call, size_t bytes) { return ln_pool_alloc(call->plan, bytes); }

ln_memory *ln_call_memory(const ln_call *call) { return ((ln_pool *)call->plan)->memory; }

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

static bool registered(const linnet_step *step) { return step->call.op->flags & LN_OP_REGISTERED; }

const char *linnet_step_op(const linnet_step *step) {
    return registered(step) ? ln_user_host(step->call.op)->name : step->call.op->name;
}
const char *linnet_step_name(const linnet_step *step) { return step->name; }
int linnet_step_input_count(const linnet_step *step) { return step->call.n_inputs + step->call.n_extra; }
int linnet_step_output_count(const linnet_step *step) { return step->call.n_outputs; }
int linnet_step_precision(const linnet_step *step) {
    const int precision = step->call.precision;
    /* LINNET_PRECISION_DIRECT only excludes kernels of the CPU. */
    return precision == LINNET_PRECISION_DIRECT ? LINNET_PRECISION_F32 : precision;
}

linnet_status ln_device_tensor(const ln_tensor *t, const ln_step_value *value, linnet_device_tensor *out) {
    if (!LN_HAS_DEVICES) return LINNET_UNSUPPORTED;
    linnet_device_tensor own = {.dtype = t->dtype};
    if (t->dtype != LINNET_NONE) {
        own.name = value->name;
        own.value = value->value;
        own.readers = value->readers;
        own.variable = value->variable;
        own.rank = t->rank;
        memcpy(own.shape, t->dims, (size_t)t->rank * sizeof *own.shape);
        memcpy(own.strides, t->strides, (size_t)t->rank * sizeof *own.strides);
        own.bytes = value->bytes;
        own.bits = ln_dtype_bits(t->dtype);
        own.quant_axis = -1;
        own.layout = value->token;
        own.constant = t->data != NULL;
        own.data = t->data;
        const linnet_device *d = value->device;
        if (value->token == 0) {
            ln_layout_of(t->layout, t->rank, &own.axes);
        } else if (d->describe == NULL || d->describe(d->context, value->token, t->rank, &own.axes) == 0) {
            own.axes = (linnet_layout){.block = -1};
        } else {
            ln_layout_strides(&own.axes, t, own.strides);
            ln_layout_bytes(&own.axes, t, &own.bytes);
        }
    }
    if (t->dtype != LINNET_NONE && t->quant != NULL) {
        own.quant_scheme = t->quant->scheme;
        own.bits = t->quant->bits > 0 ? t->quant->bits : own.bits;
        own.quant_axis = t->quant->scheme == LN_QUANT_TENSOR ? -1 : t->quant->axis;
        own.quant_block = t->quant->scheme == LN_QUANT_BLOCK ? (int32_t)t->quant->block : 0;
        own.quant_count = t->quant->count;
        own.scales = t->quant->scale;
        own.zeros = t->quant->zero;
    }
    return LN_GIVE(linnet_device_tensor, zeros, &own, out);
}

static linnet_status operand(const linnet_step *step, int i, int first, int count, linnet_device_tensor *out) {
    if (i < 0 || i >= count) return LINNET_INVALID_ARGUMENT;
    const ln_tensor *t = first == 0 ? &step->call.inputs[i] : &step->call.outputs[i];
    return ln_device_tensor(t, &step->values[first + i], out);
}

linnet_status linnet_step_get_input(const linnet_step *step, int i, linnet_device_tensor *out) {
    return operand(step, i, 0, linnet_step_input_count(step), out);
}

linnet_status linnet_step_get_output(const linnet_step *step, int i, linnet_device_tensor *out) {
    return operand(step, i, linnet_step_input_count(step), step->call.n_outputs, out);
}

const linnet_body *linnet_step_body(const linnet_step *step, int i) {
    return LN_HAS_DEVICES && i >= 0 && i < 2 ? step->bodies[i] : NULL;
}

const linnet_step *linnet_body_step(const linnet_body *body, int i) {
    return LN_HAS_DEVICES && i >= 0 && i < body->n_steps ? &body->steps[i] : NULL;
}

linnet_status linnet_body_get_input(const linnet_body *body, int i, linnet_device_tensor *out) {
    if (i < 0 || i >= body->n_inputs) return LINNET_INVALID_ARGUMENT;
    return ln_device_tensor(&body->tensors[i], &body->values[i], out);
}

linnet_status linnet_body_get_output(const linnet_body *body, int i, linnet_device_tensor *out) {
    if (i < 0 || i >= body->n_outputs) return LINNET_INVALID_ARGUMENT;
    return ln_device_tensor(&body->tensors[body->n_inputs + i], &body->values[body->n_inputs + i], out);
}

linnet_status linnet_step_get_result(const linnet_step *step, linnet_device_tensor *out) {
    static const ln_step_value unstored = {.name = ""};
    if (step->call.epilogue == NULL) return LINNET_UNKNOWN_NAME;
    return ln_device_tensor(step->call.inner, &unstored, out);
}

linnet_status linnet_step_get_map(const linnet_step *step, linnet_map *out) {
    if (!LN_HAS_DEVICES) return LINNET_UNSUPPORTED;
    const ln_call *call = &step->call;
    const bool node = call->op->family == LN_FAMILY_MAP;
    const ln_map_attributes *map = node ? call->attributes : call->epilogue != NULL ? call->epilogue->map : NULL;
    if (map == NULL) return LINNET_UNKNOWN_NAME;
    linnet_map own = {.instruction_count = (int32_t)(map->program.n / 5),
                      .program = map->program.v,
                      .floats = map->floats.v,
                      .float_count = (int32_t)map->floats.n,
                      .integers = map->integers.v,
                      .integer_count = (int32_t)map->integers.n,
                      .rank = call->outputs[0].rank,
                      .input_count = node ? call->n_inputs : call->epilogue->n_inputs,
                      .output_count = call->n_outputs,
                      .result = node ? -1 : call->epilogue->tile_input,
                      .first = node ? 0 : call->n_inputs};
    memcpy(own.shape, call->outputs[0].dims, sizeof own.shape);
    return LN_GIVE(linnet_map, first, &own, out);
}

linnet_status linnet_map_get_opcode(int opcode, linnet_map_opcode *out) {
    if (opcode <= 0 || opcode >= LN_MAP_LIMIT || ln_map_opcodes[opcode].name == 0) return LINNET_UNKNOWN_NAME;
    const ln_map_opcode_row *row = &ln_map_opcodes[opcode];
    const linnet_map_opcode own = {.name = ln_names + row->name, .arity = row->arity, .types = row->types};
    return LN_GIVE(linnet_map_opcode, types, &own, out);
}

static const ln_attribute *find_attribute(const linnet_step *step, const char *name) {
    if (!LN_HAS_DEVICES) return NULL;
    const ln_op *op = step->call.op;
    for (int i = 0; name != NULL && i < op->n_attributes; ++i)
        if (strcmp(ln_names + ln_op_attribute(op, i)->name, name) == 0) return ln_op_attribute(op, i);
    return NULL;
}

const int64_t *linnet_step_integers(const linnet_step *step, const char *attribute, int *count) {
    if (LN_HAS_DEVICES && registered(step) && count != NULL) {
        const linnet_user_call call = {.node = step->call.attributes};
        int64_t n = 0;
        const int64_t *values = ln_user_integers(&call, attribute, &n);
        *count = (int)n;
        return values;
    }
    const ln_attribute *a = find_attribute(step, attribute);
    if (a == NULL || count == NULL || a->type == LN_ATTRIBUTE_FLOAT || a->type == LN_ATTRIBUTE_FLOATS ||
        a->type == LN_ATTRIBUTE_BYTES)
        return NULL;
    const char *at = (const char *)step->call.attributes + a->offset;
    if (a->type != LN_ATTRIBUTE_INTS) {
        *count = 1;
        return (const int64_t *)at;
    }
    *count = (int)((const ln_ints *)at)->n;
    return ((const ln_ints *)at)->v;
}

const double *linnet_step_floats(const linnet_step *step, const char *attribute, int *count) {
    if (LN_HAS_DEVICES && registered(step) && count != NULL) {
        const linnet_user_call call = {.node = step->call.attributes};
        int64_t n = 0;
        const double *values = ln_user_floats(&call, attribute, &n);
        *count = (int)n;
        return values;
    }
    const ln_attribute *a = find_attribute(step, attribute);
    if (a == NULL || count == NULL || (a->type != LN_ATTRIBUTE_FLOAT && a->type != LN_ATTRIBUTE_FLOATS)) return NULL;
    const char *at = (const char *)step->call.attributes + a->offset;
    if (a->type == LN_ATTRIBUTE_FLOAT) {
        *count = 1;
        return (const double *)at;
    }
    *count = (int)((const ln_floats *)at)->n;
    return ((const ln_floats *)at)->v;
}
