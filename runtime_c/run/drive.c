/* drive.c - runs sessions without devices from beginning to end. drive_devices.c does this for sessions with devices,
 * and shares some functions of this file. */
#include "run/drive.h"

#include "model/store.h"
#include "model/store_holders.h"
#include "run/instance.h"
#include "run/packed_variables.h"
#include "run/operand.h"
#include "run/segment.h"
#include "run/steps.h"

#include <string.h>

linnet_status ln_run_here(linnet_session *s, bool submits, linnet_error *error) {
    (void)submits; /* without devices, the run is complete when this function returns */
    ln_instance *last = &s->root;
    linnet_status status = ln_run_begin(s, error);
    if (status != LINNET_OK) return status;
    status = ln_run_segments(s, &last, error);
    if (status == LINNET_OK && s->exclusive) ln_run_commit(s, last);
    ln_run_end(s);
    return status;
}

static linnet_status run_instance(linnet_session *s, ln_instance *instance, linnet_error *error) {
    if (instance->program->packs_variables) ln_packed_variables_refresh(s, instance);
    return ln_run_steps(s, instance, error);
}

linnet_status ln_run_segments(linnet_session *s, ln_instance **last, linnet_error *error) {
    linnet_status status = run_instance(s, *last, error);
    if ((*last)->program->rest == NULL && (*last)->program->n_dims == 0) return status;
    if (status == LINNET_OK) ln_instance_publish(s, *last);
    while (status == LINNET_OK && (*last)->program->rest != NULL) {
        status = ln_segment_next(s, *last, last, error);
        if (status == LINNET_OK) status = run_instance(s, *last, error);
        if (status == LINNET_OK) ln_instance_publish(s, *last);
    }
    if (status != LINNET_OK) ln_session_no_outputs(s);
    return status;
}

/* Stores the new values of variables that steps have not written in place. It does so for every segment of the chain,
 * the oldest segment first. Nothing here can fail. */
void ln_run_commit(linnet_session *s, const ln_instance *instance) {
    if (instance->parent != NULL) ln_run_commit(s, instance->parent);
    for (int32_t i = 0; i < instance->program->n_commits; ++i) {
        const ln_port *port = &instance->program->commits[i];
        const bool stays = port->alone && ln_store_may_hold(s->store, port->index);
        if (!stays) ln_store_overwrite(s->store, port->index);
        if (!stays && port->bytes > 0)
            memcpy(ln_store_data(s->store, port->index), ln_instance_pointer(s, instance, &port->operand),
                   (size_t)port->bytes);
        ln_store_bump(s->store, port->index);
    }
}
