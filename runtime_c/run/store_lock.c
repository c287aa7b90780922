/* store_lock.c - the store's lock during a run. */
#include "run/store_lock.h"

#include "model/store.h"
#include "model/store_holders.h"
#include "run/watch.h"

typedef struct waiting {
    linnet_session *session;
    linnet_status status;
    linnet_error *error;
} waiting;

static bool give_up(void *context) {
    waiting *w = context;
    w->status = ln_watch_look(&w->session->watch, NULL, w->error);
    return w->status != LINNET_OK;
}

static linnet_status lock(linnet_session *s, linnet_error *error) {
    waiting w = {.session = s, .error = error};
    ln_store_lock_unless(s->store, s->exclusive, s->watch.on ? give_up : NULL, &w);
    return w.status;
}

/* Fetches what is still only in a file and a kernel of the program reads. Uploads to devices read the file. */
static linnet_status read_files(linnet_session *s, const ln_program *p, linnet_error *error);

static linnet_status read_operands(linnet_session *s, const ln_operand *operands, int count, linnet_error *error) {
    linnet_status status = LINNET_OK;
    for (int k = 0; operands != NULL && k < count && status == LINNET_OK; ++k)
        if (operands[k].region == LN_REGION_VARIABLE && ln_on_cpu(operands[k].device))
            status = ln_store_fetch(s->store, operands[k].index, &s->holder, error);
    return status;
}

static linnet_status read_step(linnet_session *s, const ln_step *step, linnet_error *error) {
    linnet_status status = LINNET_OK;
    const bool computes = step->kind == LN_STEP_KERNEL || step->kind == LN_STEP_LOOP || step->kind == LN_STEP_BRANCH;
    if (computes || (step->kind == LN_STEP_UPLOAD && step->weight < 0))
        status = read_operands(s, step->inputs, step->call.n_inputs + step->call.n_extra, error);
    if (computes && status == LINNET_OK) status = read_operands(s, step->outputs, step->call.n_outputs, error);
    for (int b = 0; b < 2 && status == LINNET_OK; ++b)
        if (step->bodies[b] != NULL) status = read_files(s, step->bodies[b], error);
    return status;
}

static linnet_status read_files(linnet_session *s, const ln_program *p, linnet_error *error) {
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i < p->n_steps && status == LINNET_OK; ++i) status = read_step(s, &p->steps[i], error);
    for (int32_t i = 0; i < p->n_inputs && status == LINNET_OK; ++i)
        status = read_operands(s, &p->inputs[i].operand, 1, error);
    for (int32_t i = 0; i < p->n_outputs && status == LINNET_OK; ++i)
        status = read_operands(s, &p->outputs[i].operand, 1, error);
    for (int32_t i = 0; i < p->n_exports && status == LINNET_OK; ++i)
        status = read_operands(s, &p->exports[i].operand, 1, error);
    /* What later segments read is not known yet. */
    const int32_t all = p->rest != NULL ? ln_store_model(s->store)->n_variables : 0;
    for (int32_t i = 0; i < all && status == LINNET_OK; ++i) status = ln_store_fetch(s->store, i, &s->holder, error);
    return status;
}

/* Locks the store and gets the values that other sessions hold, or that nobody has read yet. The caller's poll may free
 * these sessions, which must not wait for the lock then. */
linnet_status ln_lock_for_run(linnet_session *s, linnet_error *error) {
    linnet_status status = lock(s, error);
    if (!LN_HAS_DEVICES || status != LINNET_OK) return status;
    status = ln_store_fetch(s->store, -1, &s->holder, error);
    const uint64_t left = ln_store_left(s->store);
    if (status == LINNET_OK && s->seen_left != left) status = read_files(s, &s->plan->program, error);
    if (status == LINNET_OK)
        s->seen_left = left;
    else
        ln_store_unlock(s->store);
    return status;
}
