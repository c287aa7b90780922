/* user.c - the op `user`. Its shape rule and its kernel call the functions that the host program has registered, and
 * check what these functions return. */
#include "kernel/user.h"

#include "base/layout.h"
#include "kernel/kernel.h"
#include "kernel/parts.h"
#include "kernel/step.h"

#include <stdio.h>
#include <string.h>

/* ---- what a callback sees --------------------------------------------------------------------------------------- */

static void fill(const ln_tensor *from, linnet_operand *to) {
    memset(to, 0, sizeof *to);
    to->dtype = from->dtype;
    to->bits = ln_dtype_bits(from->dtype);
    to->quant_axis = -1;
    to->rank = from->rank;
    for (int d = 0; d < LN_MAX_RANK; ++d) to->shape[d] = d < from->rank ? from->dims[d] : 0;
    to->data = (void *)(uintptr_t)from->data;
    if (from->quant == NULL) return;
    to->quant_scheme = from->quant->scheme;
    to->quant_axis = from->quant->scheme == LN_QUANT_TENSOR ? -1 : from->quant->axis;
    to->quant_block = from->quant->scheme == LN_QUANT_BLOCK ? (int32_t)from->quant->block : 0;
    to->quant_count = from->quant->count;
    to->scales = from->quant->scale;
    to->zeros = from->quant->zero;
}

/* The operands that a callback sees, the inputs first. */
typedef struct seen {
    linnet_operand operands[LN_MAX_OPERANDS], *pointers[LN_MAX_OPERANDS];
} seen;

/* Fills the call that a callback gets. ln_user_arity has made sure that there is space for all operands in *s. */
static linnet_user_call call_of(const ln_op *op, const void *attributes, int n_inputs, const ln_tensor *inputs,
                                int n_outputs, const ln_tensor *outputs, seen *s) {
    for (int i = 0; i < n_inputs + n_outputs; ++i) {
        fill(i < n_inputs ? &inputs[i] : &outputs[i - n_inputs], &s->operands[i]);
        s->pointers[i] = &s->operands[i];
    }
    return (linnet_user_call){.struct_size = sizeof(linnet_user_call),
                              .context = ln_user_host(op)->context,
                              .node = attributes,
                              .version = (int32_t)((const ln_user_attributes *)attributes)->version,
                              .input_count = n_inputs,
                              .output_count = n_outputs,
                              .inputs = (const linnet_operand *const *)s->pointers,
                              .outputs = s->pointers + n_inputs,
                              .items = 1,
                              .grain = 1,
                              .attribute = ln_user_attribute,
                              .integers = ln_user_integers,
                              .floats = ln_user_floats,
                              .text = ln_user_text};
}

/* ---- shape rule -------------------------------------------------------------------------------------------------- */

static linnet_status wrong_output(const ln_infer *infer, int o, const char *what, const ln_tensor *declared,
                                  const linnet_operand *got) {
    char text[96];
    const char *name = linnet_dtype_name(got->dtype);
    ln_fail(infer->error, LINNET_USER_OP_FAILED, "the shape rule of user op %s gives output %d %s",
            ln_user_host(infer->op)->name, o, what);
    ln_expected(infer->error, "%s %s", declared->dtype ? linnet_dtype_name(declared->dtype) : "a dtype and",
                declared->rank < 0 ? "any shape of rank 0 to 8"
                                   : ln_shape_text(declared->dims, declared->rank, text, sizeof text));
    if (got->rank < 0 || got->rank > LN_MAX_RANK)
        return ln_got(infer->error, "%s, rank %d", name ? name : "no dtype", (int)got->rank), LINNET_USER_OP_FAILED;
    return ln_got(infer->error, "%s %s", name ? name : "no dtype",
                  ln_shape_text(got->shape, got->rank, text, sizeof text)),
           LINNET_USER_OP_FAILED;
}

/* Takes over the output that the callback wrote. What the file declares stays; the callback must not contradict it. */
static linnet_status take(const ln_infer *infer, int o, const linnet_operand *got) {
    ln_tensor *out = &infer->outputs[o];
    if (got->dtype <= LINNET_NONE || got->dtype > LINNET_BOOL || (out->dtype && out->dtype != got->dtype))
        return wrong_output(infer, o, "a wrong dtype", out, got);
    if (got->rank < -1 || got->rank > LN_MAX_RANK || (out->rank >= 0 && got->rank >= 0 && got->rank != out->rank))
        return wrong_output(infer, o, "a wrong rank", out, got);
    const bool decides = infer->op->flags & LN_OP_DATA_DEPENDENT;
    for (int d = 0; d < got->rank; ++d)
        if ((got->shape[d] < -1 && !decides) ||
            (out->rank >= 0 && out->dims[d] >= 0 && got->shape[d] >= 0 && got->shape[d] != out->dims[d]))
            return wrong_output(infer, o, "a wrong shape", out, got);
    out->dtype = (uint8_t)got->dtype;
    for (int d = 0; d < got->rank; ++d)
        if (out->rank < 0 || out->dims[d] < 0) out->dims[d] = got->shape[d];
    if (out->rank < 0) out->rank = (int8_t)got->rank;
    return LINNET_OK;
}

linnet_status ln_infer_user(const ln_infer *infer) {
    const linnet_user_op *host = ln_user_host(infer->op);
    seen s;
    char problem[160] = "";
    if (!LN_HAS_USER_OPS) return LINNET_UNSUPPORTED; /* files that name user ops are refused */
    if (host == NULL) {
        ln_fail(infer->error, LINNET_UNSUPPORTED, "the shape rule of a user op is known only to its model");
        return ln_hint(infer->error, "call linnet_user_op_infer"), LINNET_UNSUPPORTED;
    }
    const linnet_status fits = ln_user_arity(host, infer->n_inputs, infer->n_outputs, infer->error);
    if (fits != LINNET_OK || host->infer == NULL)
        return fits; /* model/user.c has checked that the file declares every shape */
    linnet_user_call call =
        call_of(infer->op, infer->attributes, infer->n_inputs, infer->inputs, infer->n_outputs, infer->outputs, &s);
    call.problem = problem;
    call.problem_size = sizeof problem;
    if (host->infer(&call) != 0) {
        problem[sizeof problem - 1] = 0;
        return ln_user_failed("the shape rule of ", host->name, problem, infer->error);
    }
    for (int o = 0; o < infer->n_outputs; ++o) {
        const linnet_status status = take(infer, o, &s.operands[infer->n_inputs + o]);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}

/* ---- kernel ------------------------------------------------------------------------------------------------------ */

static bool can(const ln_call *call) {
    for (int i = 0; i < call->n_inputs + call->n_outputs; ++i) {
        const ln_tensor *t = i < call->n_inputs ? &call->inputs[i] : &call->outputs[i - call->n_inputs];
        if (t->dtype != LINNET_NONE && !ln_is_dense(t)) return false;
    }
    return true;
}

/* What the function `prepare` of the host program has decided. */
typedef struct prepared {
    size_t scratch_size;
    int64_t items, grain;
    uint8_t decided[LN_MAX_OPERANDS]; /* per output, bit d: the kernel decides dimension d */
} prepared;

/* Asks the shape rule again which dimensions the kernel decides. */
static linnet_status ask_decided(const ln_call *call, uint8_t *decided) {
    const linnet_user_op *host = ln_user_host(call->op);
    seen s;
    char problem[64];
    linnet_user_call user =
        call_of(call->op, call->attributes, call->n_inputs, call->inputs, call->n_outputs, call->outputs, &s);
    linnet_operand *outputs = s.operands + call->n_inputs;
    user.problem = problem;
    user.problem_size = sizeof problem;
    for (int o = 0; o < call->n_outputs; ++o)
        for (int d = 0; d < LN_MAX_RANK; ++d) outputs[o].shape[d] = -1;
    if (host->infer(&user) != 0) return LINNET_USER_OP_FAILED;
    for (int o = 0; o < call->n_outputs; ++o)
        for (int d = 0; d < call->outputs[o].rank; ++d)
            if (outputs[o].shape[d] < -1) decided[o] |= (uint8_t)(1u << d);
    return LINNET_OK;
}

static linnet_status configure(ln_call *call) {
    const linnet_user_op *host = ln_user_host(call->op);
    seen s;
    prepared *p = ln_call_state(call, sizeof *p);
    if (p == NULL) return LINNET_OUT_OF_MEMORY;
    linnet_user_call user =
        call_of(call->op, call->attributes, call->n_inputs, call->inputs, call->n_outputs, call->outputs, &s);
    user.precision = call->precision;
    if (host->prepare != NULL) host->prepare(&user);
    const uint64_t scratch = user.scratch_size; /* in 64 bits: a comparison of a 32-bit size_t gives a warning */
    if (scratch > LN_MOST_BYTES || user.items < 0) return LINNET_USER_OP_FAILED;
    p->scratch_size = user.scratch_size;
    p->items = user.items;
    p->grain = ln_max(user.grain, 1);
    if (call->op->flags & LN_OP_DATA_DEPENDENT) {
        const linnet_status status = p->items == 1 ? ask_decided(call, p->decided) : LINNET_USER_OP_FAILED;
        if (status != LINNET_OK) return status;
    }
    call->state = p;
    call->work[0] = p->items;
    call->grain = p->grain;
    call->scratch_thread = p->scratch_size;
    return LINNET_OK;
}

/* Takes the sizes that the kernel has decided. Returns false after writing what is wrong with them. */
static bool take_sizes(const ln_call *call, const ln_buffers *b, const linnet_operand *outputs, char *problem,
                       size_t size) {
    const prepared *planned = call->state;
    for (int o = 0; o < call->n_outputs; ++o)
        for (int d = 0; d < call->outputs[o].rank; ++d) {
            const int64_t most = call->outputs[o].dims[d], got = outputs[o].shape[d];
            if (got != most && (got < 0 || got > most || !(planned->decided[o] >> d & 1))) {
                snprintf(problem, size, "it gives output %d the size %lld in dimension %d; expected %s%lld", o,
                         (long long)got, d, planned->decided[o] >> d & 1 ? "at most " : "", (long long)most);
                return false;
            }
            b->output_dims[o * LN_MAX_RANK + d] = got;
        }
    return true;
}

static linnet_status run(const ln_call *call, const ln_buffers *b, int phase, int64_t begin, int64_t end, int thread) {
    const linnet_user_op *host = ln_user_host(call->op);
    const prepared *planned = call->state;
    seen s;
    char problem[128] = "";
    linnet_user_call user =
        call_of(call->op, call->attributes, call->n_inputs, call->inputs, call->n_outputs, call->outputs, &s);
    (void)phase;
    for (int i = 0; i < call->n_inputs; ++i) s.operands[i].data = (void *)(uintptr_t)b->inputs[i];
    for (int i = 0; i < call->n_outputs; ++i) s.operands[call->n_inputs + i].data = b->outputs[i];
    user.problem = problem;
    user.problem_size = sizeof problem;
    user.precision = call->precision;
    user.scratch_size = planned->scratch_size;
    user.items = planned->items;
    user.grain = planned->grain;
    user.scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    user.begin = begin;
    user.end = end;
    if (host->run(&user) == 0 &&
        (b->output_dims == NULL || take_sizes(call, b, s.operands + call->n_inputs, problem, sizeof problem)))
        return LINNET_OK;
    if (atomic_exchange(&b->error->raised, 1) == 0) {
        memcpy(b->error->text, problem, sizeof problem - 1);
        b->error->text[sizeof problem - 1] = 0;
        b->error->operand = host->name;
    }
    return LINNET_USER_OP_FAILED;
}

const ln_kernel_code ln_reference_user = {.can = can, .configure = configure, .run = run};
