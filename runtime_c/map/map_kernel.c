/* map_kernel.c - the parts of the fast kernel of `map` that are the same for every ISA: its plan, the division into
 * strips, and lookup tables. The kernels themselves (one per ISA) are at the end of map/map_strip.inc.c and call
 * functions here. */
#include "map/map_kernel.h"

#include "kernel/parts.h"
#include "kernel/step.h"
#include "map/map_compile.h"
#include "map/map_program.h"
#include "map/map_shape.h"
#include "map/map_sum.h"

#include <string.h>

/* The interpreters of this build, best first. LN_PORTABLE is a build of portable code only (an amalgamation). */
#if !defined(LN_PORTABLE) && (defined(__x86_64__) || defined(_M_X64))
#define LEVELS(LEVEL)                                                                                                  \
    LN_IF_avx512(LEVEL(LN_ISA_avx512, ln_map_isa__avx512)) LN_IF_avx2(LEVEL(LN_ISA_avx2, ln_map_isa__avx2))            \
        LEVEL(LN_ISA_SCALAR, ln_map_isa__sse2) /* every x86-64 has SSE2 */
#elif !defined(LN_PORTABLE) && defined(__aarch64__)
#define LEVELS(LEVEL) LEVEL(LN_ISA_SCALAR, ln_map_isa__neon)
#elif !defined(LN_PORTABLE) && defined(__arm__) && defined(__ARM_NEON)
#define LEVELS(LEVEL) LEVEL(LN_ISA_SCALAR, ln_map_isa__neon32)
#else
#define LEVELS(LEVEL) LEVEL(LN_ISA_SCALAR, ln_map_isa__scalar)
#endif
#define DECLARE(level, symbol) extern const ln_map_isa symbol;
LEVELS(DECLARE)

const ln_map_isa *ln_map_isa_for(ln_features features) {
#define TAKE(level, symbol)                                                                                            \
    if (((ln_features)(level) & ~features) == 0) return &symbol;
    LEVELS(TAKE)
    return NULL; /* not reached: the last entry, LN_ISA_SCALAR, needs no feature */
}

char **ln_map_registers(const ln_map_program *p, void *scratch) {
    char **registers = scratch;
    uintptr_t slots = ((uintptr_t)(registers + p->n_registers) + 63) & ~(uintptr_t)63;
    for (int i = 0; i < p->n_slots; i++) registers[i] = (char *)slots + (size_t)i * p->register_bytes;
    for (int i = p->n_slots; i < p->n_registers; i++)
        registers[i] = (char *)(uintptr_t)(p->constants + (size_t)(i - p->n_slots) * p->register_bytes);
    return registers;
}

static ln_map_source source_of(const ln_call *call) {
    return (ln_map_source){.map = call->attributes,
                           .inputs = call->inputs,
                           .n_inputs = call->n_inputs,
                           .outputs = call->outputs,
                           .n_outputs = call->n_outputs,
                           .tile_input = -1,
                           .most_bytes = 24576};
}

bool ln_map_can(const ln_call *call) {
    ln_map_source source = source_of(call);
    return call->n_outputs > 0 && ln_map_compilable(&source);
}

/* Returns the rough cost of a step in cycles per element, for the decision whether a lookup table is faster. */
static int cost(const ln_map_step *s) {
    switch (s->code) {
    case LN_MAP_LOAD:
    case LN_MAP_STORE: return 0;
    case LN_MAP_POW:
    case LN_MAP_FMOD:
    case LN_MAP_MOD: return 16;
    default: break;
    }
    if (s->code == LN_MAP_DIV || s->code == LN_MAP_RECIPROCAL || s->code == LN_MAP_SQRT) return 2;
    if (s->code == LN_MAP_ACTIVATION && s->activation != 0) return 8;
    if (s->code >= LN_MAP_EXP && s->code <= LN_MAP_ATANH)
        return s->code >= LN_MAP_FLOOR && s->code <= LN_MAP_TRUNC ? 1 : 4;
    return s->type == LINNET_F64 || s->type == LINNET_I64 ? 2 : 1;
}

/* Makes p->table if that is possible and faster: the program must map one dense 8-bit input to one dense 8-bit output,
 * element by element. The table is in memory of the call's plan; temporary memory is in `pool`. */
static linnet_status tabulate(const ln_map_source *source, ln_map_program *p, ln_pool *pool, ln_call *call,
                              const ln_map_isa *isa) {
    int input = -1, output = -1, total = 0;
    for (int i = 0; i < p->n_steps; i++) {
        const ln_map_step *s = &p->steps[i];
        const ln_map_view *v = &p->views[s->view];
        total += cost(s);
        switch (s->code) {
        case LN_MAP_LOAD:
        case LN_MAP_LOAD_DEQUANTIZED:
            if (v->operand < 0 || (input >= 0 && p->views[input].operand != v->operand)) return LINNET_OK;
            input = s->view;
            break;
        case LN_MAP_STORE:
        case LN_MAP_STORE_QUANTIZED:
            if (output >= 0) return LINNET_OK;
            output = s->view;
            break;
        case LN_MAP_IOTA:
        case LN_MAP_TABLE: return LINNET_OK;
        default: break;
        }
    }
    /* A lookup takes about a cycle per element; wider vectors execute more steps in that time. */
    const int worth = isa->lanes <= 4 ? 3 : isa->lanes == 8 ? 5 : 6;
    if (input < 0 || output < 0 || total < worth || p->count < 512) return LINNET_OK;
    const ln_map_view *x = &p->views[input], *y = &p->views[output];
    if (ln_dtype_size(x->dtype) != 1 || ln_dtype_size(y->dtype) != 1 || x->dtype == LINNET_BOOL || x->rank != 1 ||
        y->rank != 1 || x->strides[0] != 1 || y->strides[0] != 1)
        return LINNET_OK;
    /* The table is the result of the program for the 256 codes. */
    uint8_t *table = ln_call_state(call, 256), *codes = ln_pool_alloc(pool, 256);
    char *scratch = ln_pool_alloc(pool, p->scratch_bytes + 64);
    char **bases = ln_pool_array(pool, p->n_views, sizeof *bases);
    p->constants = ln_map_constants(source, p, pool);
    if (!table || !codes || !scratch || !bases || !p->constants) return LINNET_OUT_OF_MEMORY;
    for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
    for (int v = 0; v < p->n_views; v++) bases[v] = (char *)(v == output ? table : codes);
    char **registers = ln_map_registers(p, (void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63));
    for (int start = 0; start < 256; start += p->strip)
        isa->strip(p, p->views, bases, start, (int)ln_min(p->strip, 256 - start), registers);
    p->table = table;
    p->table_input = x->operand;
    return LINNET_OK;
}

/* Makes p->sum if the program is a sum that the ISA computes. */
static linnet_status sum_up(const ln_map_source *source, ln_map_program *p, ln_call *call, const ln_map_isa *isa) {
    ln_map_sum sum;
    if (!LN_MAP_HAS_SUM || isa->sum == NULL || !ln_map_find_sum(source, p, &sum)) return LINNET_OK;
    ln_map_sum *kept = ln_call_state(call, sizeof *kept);
    if (kept == NULL) return LINNET_OUT_OF_MEMORY;
    *kept = sum;
    p->sum = kept;
    return LINNET_OK;
}

linnet_status ln_map_prepare(const ln_map_source *original, ln_call *call, const ln_map_isa *isa) {
    ln_pool temporary;
    ln_map_program compiled, *p = NULL;
    ln_map_source source = *original;
    ln_pool_init(&temporary, ln_call_memory(call));
    linnet_status status =
        isa != NULL && isa->find_activations != NULL ? isa->find_activations(&source, &temporary) : LINNET_OK;
    if (status == LINNET_OK) status = ln_map_compile(&source, &temporary, &compiled);
    if (status == LINNET_OK && isa != NULL) status = tabulate(&source, &compiled, &temporary, call, isa);
    if (status == LINNET_OK && isa != NULL) status = sum_up(&source, &compiled, call, isa);
    if (status == LINNET_OK) status = ln_map_keep(&source, &compiled, call, &p);
    ln_pool_free(&temporary);
    if (status != LINNET_OK) return status;
    call->state = p;
    if (p->table == NULL && p->sum == NULL)
        call->scratch_thread = p->scratch_bytes + ln_round_up((size_t)p->n_views * sizeof(char *), 64);
    call->work[0] = ln_ceil_div(p->count, p->strip);
    call->grain = ln_max(1, 16384 / p->strip);
    return LINNET_OK;
}

linnet_status ln_map_configure(ln_call *call, ln_features features) {
    const ln_map_source source = source_of(call);
    return ln_map_prepare(&source, call, ln_map_isa_for(features));
}

linnet_status ln_map_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, int thread,
                         const ln_map_isa *isa) {
    const ln_map_program *p = call->state;
    int64_t first = begin * p->strip, last = ln_min(end * p->strip, p->count);
    if (p->table) {
        const uint8_t *x = b->inputs[p->table_input], *table = p->table;
        uint8_t *y = b->outputs[0];
        for (int64_t i = first; i < last; i++) y[i] = table[x[i]];
        return LINNET_OK;
    }
    if (p->sum) {
        const uint8_t *halved = b->inputs[p->sum->halved.operand], *scaled = b->inputs[p->sum->scaled.operand];
        isa->sum(p->sum, halved + first, scaled + first, (uint8_t *)b->outputs[0] + first, last - first);
        return LINNET_OK;
    }
    /* One base pointer per view. Most programs have few views, so the array on the stack is large enough. */
    char *few[24], **bases = few;
    char *scratch = b->thread_scratch + (size_t)thread * b->thread_stride;
    if (p->n_views > 24) {
        bases = (char **)(void *)scratch;
        scratch += ln_round_up((size_t)p->n_views * sizeof *bases, 64);
    }
    for (int v = 0; v < p->n_views; v++) {
        const ln_map_view *view = &p->views[v];
        bases[v] = view->operand < 0             ? (char *)(uintptr_t)view->data
                   : view->operand < p->n_inputs ? (char *)(uintptr_t)b->inputs[view->operand]
                                                 : b->outputs[view->operand - p->n_inputs];
    }
    char **registers = ln_map_registers(p, scratch);
    for (int k = 0; k < p->n_steps; k++) {
        const ln_map_step *s = &p->steps[k];
        if (s->direct != LN_MAP_DIRECT_REPEAT) continue;
        const ln_map_view *view = &p->views[s->view];
        const size_t whole = (size_t)p->strip * sizeof(float);
        size_t done = (size_t)(view->rank == 1 ? 1 : view->dims[1]) * sizeof(float);
        memcpy(registers[s->y], bases[s->view], done);
        for (; done < whole; done *= 2)
            memcpy(registers[s->y] + done, registers[s->y], done < whole - done ? done : whole - done);
    }
    for (int64_t start = first; start < last; start += p->strip)
        isa->strip(p, p->views, bases, start, (int)ln_min(p->strip, last - start), registers);
    return LINNET_OK;
}
