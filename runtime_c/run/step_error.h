/* step_error.h - the error of a step that has failed. */
#ifndef LN_STEP_ERROR_H
#define LN_STEP_ERROR_H

#include "plan/session_layout.h"

/* Adds the number and name of the step to the error, and returns the status. */
static inline linnet_status ln_step_failed(linnet_session *s, const ln_resolved_step *resolved, linnet_status status,
                                           linnet_error *error) {
    ln_run_error_fail(&s->run_error, status, error);
    ln_at_node(error, resolved->step->index, resolved->step->name);
    return status;
}

#endif
