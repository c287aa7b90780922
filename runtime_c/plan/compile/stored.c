/* stored.c - constants that the file holds as a kernel packs them (docs/format.md, "Packed weights"). A key says what
 * was packed and how. A plan uses stored constants in place if their key is the one that it computes, and if their
 * bytes match their digest; otherwise it packs them itself. */
#include "plan/compile/stored.h"

#include "base/digest.h"
#include "plan/compile/program.h"
#include "linnet_ext.h"

#include <stdio.h>
#include <string.h>

/* Increase it when a kernel packs the same constants into other bytes. tests/test_pack.py compares them. */
enum { PACKING_VERSION = 1 };

enum { UNKNOWN, GOOD, BAD }; /* ln_stored.state */

static void add_attributes(const ln_call *call, uint64_t sum[2]) {
    for (int i = 0; i < call->op->n_attributes; ++i) {
        const ln_attribute *a = ln_op_attribute(call->op, i);
        const void *field = (const char *)call->attributes + a->offset;
        if (a->type < LN_ATTRIBUTE_INTS) {
            ln_digest(field, sizeof(int64_t), sum);
            continue;
        }
        const ln_text *list = field; /* the three types of lists differ only in the size of an element */
        ln_digest(list->v, (size_t)list->n * (a->type == LN_ATTRIBUTE_BYTES ? 1 : sizeof(int64_t)), sum);
    }
}

/* Returns the segment of the file that contains the address. Segments are in the order of their offsets
 * (model/structure.c). */
static const ln_segment *segment_of(const linnet_model *model, const void *data) {
    int32_t low = 0, high = model->n_segments;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        const ln_segment *s = &model->segments[middle];
        if ((uintptr_t)data < (uintptr_t)s->data)
            high = middle;
        else if ((uintptr_t)data - (uintptr_t)s->data >= s->size)
            low = middle + 1;
        else
            return s;
    }
    return NULL;
}

/* Adds what packing may depend on. Values of the file are identified by the digest of their segment. */
static bool add_tensor(const linnet_model *model, const ln_tensor *t, bool folded, uint64_t sum[2]) {
    const bool packable = ln_packable(t);
    const ln_quant *q = t->quant;
    const uint64_t head[] = {t->dtype, packable ? (uint64_t)t->rank : UINT64_MAX, q != NULL ? q->scheme : 0,
                             q != NULL ? (uint64_t)(uint32_t)q->axis : 0, q != NULL ? q->block : 0};
    ln_digest(head, sizeof head, sum);
    if (q != NULL) {
        ln_digest(q->scale, q->count * sizeof *q->scale, sum);
        ln_digest(q->zero, q->zero != NULL ? q->count * sizeof *q->zero : 0, sum);
    }
    if (!packable) return true;
    const size_t bytes = t->rank > 0 ? (size_t)t->rank * sizeof *t->dims : 0;
    ln_digest(t->dims, bytes, sum);
    ln_digest(t->strides, bytes, sum);
    if (folded) return true;
    const ln_segment *s = segment_of(model, t->data);
    if (s == NULL || s->digest_kind != LN_DIGEST_CRC32C) return false;
    const uint64_t source[] = {s->digest, s->size, (uint64_t)((const char *)t->data - (const char *)s->data)};
    ln_digest(source, sizeof source, sum);
    return true;
}

/* Returns false if a constant has no digest. */
static bool key_of(const linnet_model *model, const ln_step *step, char key[LN_STORED_KEY]) {
    const ln_call *call = &step->call;
    uint64_t sum[2] = {0, 0};
    const uint64_t how[] = {PACKING_VERSION, call->packing, call->packed_bytes, (uint64_t)call->n_inputs, step->folded};
    ln_digest(linnet_version(), strlen(linnet_version()), sum);
    ln_digest(step->kernel->name, strlen(step->kernel->name), sum);
    ln_digest(how, sizeof how, sum);
    ln_digest(step->content, sizeof step->content, sum);
    add_attributes(call, sum);
    bool known = add_tensor(model, call->inner, true, sum);
    for (int i = 0; i < call->n_inputs; ++i) known &= add_tensor(model, &call->inputs[i], step->folded >> i & 1, sum);
    snprintf(key, LN_STORED_KEY, "%016llx%016llx", (unsigned long long)sum[0], (unsigned long long)sum[1]);
    return known;
}

/* Tells whether the stored constants have the right size and match their digest. Several plans may compute the digest
 * at the same time; they all get the same answer. */
static bool usable(ln_stored *s, const ln_call *call) {
    const ln_segment *from = s->segment;
    if (from->size != ln_round_up(call->packed_bytes, LN_ALIGNMENT) || (uintptr_t)from->data % LN_ALIGNMENT != 0 ||
        from->digest_kind != LN_DIGEST_CRC32C)
        return false;
    if (atomic_load_explicit(&s->state, memory_order_relaxed) == UNKNOWN) {
        const bool good = linnet_crc32c(0, from->data, (size_t)from->size) == from->digest;
        atomic_store_explicit(&s->state, good ? GOOD : BAD, memory_order_relaxed);
    }
    return atomic_load_explicit(&s->state, memory_order_relaxed) == GOOD;
}

int32_t ln_stored_find(const linnet_model *model, const ln_step *step) {
    char key[LN_STORED_KEY];
    if (model->n_stored == 0 || !key_of(model, step, key)) return -1;
    int32_t low = 0, high = model->n_stored;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        const int order = strcmp(model->stored[middle].key, key);
        if (order == 0) return usable(&model->stored[middle], &step->call) ? middle : -1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

const ln_step *ln_stored_step(const ln_program *program, int *i, char key[LN_STORED_KEY]) {
    for (int32_t k = 0; k < program->n_steps; ++k) {
        const ln_step *step = &program->steps[k];
        for (int b = 0; b < 2; ++b) {
            const ln_step *inner = step->bodies[b] != NULL ? ln_stored_step(step->bodies[b], i, key) : NULL;
            if (inner != NULL) return inner;
        }
        const bool packs = step->packed >= 0 || step->stored >= 0;
        if (packs && key_of(program->model, step, key) && (*i)-- == 0) return step;
    }
    return NULL;
}
