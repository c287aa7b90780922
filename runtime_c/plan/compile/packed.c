/* packed.c - constants that kernels have rearranged, packed once per model. Programs (plans for other shapes, segments,
 * bodies of loops) whose steps pack the same constants share one block. The block is found in a program that has
 * already packed it. Variables are packed too, but their copies belong to the store (run/packed_variables.c).
 */
#include "plan/compile/packed.h"

#include "base/digest.h"
#include "base/platform_files.h"
#include "base/platform_locks.h"
#include "model/structure_reader.h"
#include "plan/compile/program.h"

#include <string.h>

struct ln_packed {
    size_t size; /* including this header */
    int32_t references;
};

static void *content(ln_packed *p) { return (char *)p + LN_ALIGNMENT; }

uint64_t ln_packed_size(const ln_call *call) { return LN_ALIGNMENT + ln_round_up(call->packed_bytes, LN_ALIGNMENT); }

static bool same_tensor(const ln_tensor *a, const ln_tensor *b, bool folded) {
    if (a->dtype != b->dtype || (a->data != b->data && !folded) || a->quant != b->quant || a->read_only != b->read_only)
        return false;
    if (!ln_packable(a)) return true; /* an operand computed at run time: its shape does not affect the constants */
    const size_t bytes = a->rank > 0 ? (size_t)a->rank * sizeof *a->dims : 0;
    return a->rank == b->rank && memcmp(a->dims, b->dims, bytes) == 0 && memcmp(a->strides, b->strides, bytes) == 0;
}

void ln_packs_describe(const linnet_model *model, ln_step *step) {
    for (int i = 0; i < step->call.n_inputs; ++i) {
        const ln_tensor *t = &step->call.inputs[i];
        uint64_t bytes;
        const uintptr_t segments = (uintptr_t)model->file + LN_HEADER_SIZE + model->structure_size;
        const bool of_file = (uintptr_t)t->data - segments < model->file_size - LN_HEADER_SIZE - model->structure_size;
        if (t->data == NULL || of_file || !ln_bytes(t, &bytes)) continue;
        step->folded |= 1u << i;
        ln_digest(t->data, (size_t)bytes, step->content);
    }
}

/* Data of the file is compared by its address; data folded by plans is compared by its content. The precision of the
   two plans is not compared, so that plans share what does not depend on it: a kernel that packs differently by
   precision says so in `packing`. */
static bool packs_same(const ln_step *a, const ln_step *b) {
    const ln_call *c = &a->call, *d = &b->call;
    if (a->kernel != b->kernel || a->kind != b->kind || c->attributes != d->attributes ||
        c->packed_bytes != d->packed_bytes || c->n_inputs != d->n_inputs || c->packing != d->packing ||
        a->folded != b->folded || memcmp(a->content, b->content, sizeof a->content) != 0 ||
        !same_tensor(c->inner, d->inner, false))
        return false;
    for (int i = 0; i < c->n_inputs; ++i) {
        if (!same_tensor(&c->inputs[i], &d->inputs[i], a->folded >> i & 1)) return false;
        if (c->inputs[i].read_only &&
            (a->inputs[i].index != b->inputs[i].index || a->inputs[i].offset != b->inputs[i].offset))
            return false;
    }
    return true;
}

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

/* Returns the position of an equal step in the table, or a free position for this step. The search ends because half of
   the table is empty. */
static int32_t slot_of(const ln_program *program, const ln_step *step) {
    uint64_t hash = mixed(mixed((uintptr_t)step->kernel, (uintptr_t)step->call.attributes), step->content[0]);
    for (int i = 0; i < step->call.n_inputs; ++i)
        if (!(step->folded >> i & 1))
            hash = mixed(hash, step->call.inputs[i].read_only ? (uint64_t)step->inputs[i].index
                                                              : (uintptr_t)step->call.inputs[i].data);
    int32_t at = (int32_t)(hash & (uint64_t)(program->packing_size - 1));
    while (program->packing[at] != 0 && !packs_same(&program->steps[program->packing[at] - 1], step))
        at = (at + 1) & (program->packing_size - 1);
    return at;
}

const ln_step *ln_packs_find(const ln_program *program, const ln_step *step) {
    if (program->packing == NULL) return NULL;
    const int32_t number = program->packing[slot_of(program, step)];
    return number > 0 ? &program->steps[number - 1] : NULL;
}

void ln_packs_enter(ln_program *program, const ln_step *step) {
    program->packing[slot_of(program, step)] = (int32_t)(step - program->steps) + 1;
}

/* While a program is being built, its list `packed` is NULL, and step n_steps is the one that is being built. The
 * bodies of this step are searched too. */
bool ln_packed_before(const ln_program *program, const ln_step *step) {
    const ln_step *like = ln_packs_find(program, step);
    if (like != NULL && like != step) return true;
    for (int32_t i = program->n_bodies > 0 ? program->n_steps - (program->packed != NULL) : -1; i >= 0; --i) {
        const ln_step *other = &program->steps[i];
        for (int k = 0; k < 2; ++k)
            if (other->bodies[k] != NULL && ln_packed_before(other->bodies[k], step)) return true;
    }
    return false;
}

/* Finds a packed block that this step can use, in another program of the model. */
static ln_packed *find(const ln_program *program, const ln_step *step) {
    for (const ln_program *other = program->model->packed_programs; other != NULL; other = other->next) {
        const ln_step *like = ln_packs_find(other, step);
        if (like != NULL) return other->packed[like->packed];
    }
    return NULL;
}

/* Lets the system drop the pages of the file that only packing reads. A plan that packs them again reads them again. */
static void forget(const linnet_model *model, const ln_call *call) {
    for (int i = 0; model->file_kind == LN_FILE_MAPPED && i < call->n_inputs; ++i) {
        const ln_tensor *t = &call->inputs[i];
        const bool of_file = (uintptr_t)t->data - (uintptr_t)model->file < model->file_size;
        if (of_file && (call->packed_inputs >> i & 1)) ln_file_forget(t->data, (size_t)ln_known_bytes(t));
    }
}

static ln_packed *make(ln_program *program, const ln_step *step) {
    const size_t size = (size_t)ln_packed_size(&step->call);
    ln_packed *p = ln_memory_alloc(&program->model->packed, size);
    if (p == NULL) return NULL;
    *p = (ln_packed){.size = size};
    step->kernel->code->pack(&step->call, content(p));
    forget(program->model, &step->call);
    return p;
}

static uint64_t release(ln_program *program) {
    uint64_t freed = 0;
    for (int32_t i = 0; i < program->n_packed; ++i) {
        ln_packed *p = program->packed[i];
        if (p != NULL && --p->references == 0) {
            freed += p->size;
            ln_memory_free(&program->model->packed, p, p->size);
        }
        program->packed[i] = NULL;
    }
    return freed;
}

/* Called under the model's lock. Takes the packed constants that other programs have, and counts the program as one of
   their users. Returns the bytes that must still be packed. Constants that the program and one of its bodies both pack
   are counted twice. */
static uint64_t share(ln_program *program) {
    uint64_t missing = 0;
    int32_t seen = 0;
    for (int32_t i = 0; i < program->n_steps; ++i) {
        const ln_step *step = &program->steps[i];
        for (int k = 0; k < 2; ++k)
            if (step->bodies[k] != NULL) missing += share(step->bodies[k]);
        if (step->packed < seen || program->packed[step->packed] != NULL) continue;
        seen = step->packed + 1; /* this step is the first of those that pack these constants */
        ln_packed *p = find(program, step);
        if (p == NULL)
            missing += ln_packed_size(&step->call);
        else
            ++(program->packed[step->packed] = p)->references;
    }
    return missing;
}

uint64_t ln_program_share(ln_program *program) {
    ln_lock_exclusive(&program->model->lock);
    const uint64_t missing = share(program);
    ln_unlock(&program->model->lock);
    const uint64_t constants = program->packed_bytes - program->packed_variable_bytes;
    return (missing < constants ? missing : constants) + program->packed_variable_bytes;
}

/* Called under the model's lock, which also protects the program's memory count. */
static linnet_status pack(ln_program *program, linnet_error *error) {
    linnet_model *model = program->model;
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < program->n_steps; ++i)
        for (int k = 0; k < 2 && status == LINNET_OK; ++k)
            if (program->steps[i].bodies[k] != NULL) status = pack(program->steps[i].bodies[k], error);
    if (program->n_packed == 0 || status != LINNET_OK || program->listed) return status;
    for (int32_t i = 0; status == LINNET_OK && i < program->n_steps; ++i) {
        const ln_step *step = &program->steps[i];
        if (step->packed < 0 || program->packed[step->packed] != NULL) continue;
        ln_packed *p = find(program, step);
        if (p == NULL) p = make(program, step);
        program->packed[step->packed] = p;
        if (p != NULL)
            ++p->references;
        else
            status = ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate packed weights");
    }
    if (status != LINNET_OK) {
        release(program);
        return status;
    }
    for (int32_t i = 0; i < program->n_blobs; ++i) {
        ln_blob *blob = &program->blobs[i];
        if (!blob->packed_only) continue;
        ln_memory_free(program->memory, blob->data, blob->size);
        blob->data = NULL;
    }
    program->next = model->packed_programs;
    program->listed = true;
    model->packed_programs = program;
    return LINNET_OK;
}

linnet_status ln_program_pack(ln_program *program, linnet_error *error) {
    linnet_model *model = program->model;
    ln_lock_exclusive(&model->lock);
    const size_t before = model->packed.bytes;
    const linnet_status status = pack(program, error);
    /* What this call has packed for the program and its bodies: nothing in a second call. */
    program->packed_own += model->packed.bytes - before;
    ln_unlock(&model->lock);
    return status;
}

const void *ln_program_packed(const ln_program *program, const ln_step *step) {
    if (step->stored >= 0) return program->model->stored[step->stored].segment->data;
    return step->packed >= 0 ? content(program->packed[step->packed]) : NULL;
}

uint64_t ln_program_unpack(ln_program *program) {
    uint64_t freed = 0;
    for (int32_t i = 0; program->n_bodies > 0 && i < program->n_steps; ++i)
        for (int k = 0; k < 2; ++k)
            if (program->steps[i].bodies[k] != NULL) freed += ln_program_unpack(program->steps[i].bodies[k]);
    if (program->n_packed == 0 || program->packed == NULL) return freed;
    ln_lock_exclusive(&program->model->lock);
    if (program->listed) {
        ln_program **at = &program->model->packed_programs;
        while (*at != program) at = &(*at)->next;
        *at = program->next;
        program->listed = false;
    }
    freed += release(program);
    ln_unlock(&program->model->lock);
    return freed;
}
