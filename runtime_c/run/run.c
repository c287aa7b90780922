/* run.c - linnet_run: takes the conditions that may end the run, and calls the session's driver. */
#include "run/run.h"

#include "run/operand.h"
#include "run/watch.h"

linnet_status ln_run(linnet_session *s, const linnet_run_config *config, bool submits, linnet_error *error) {
    const linnet_status status =
        s->unbound > 0 ? ln_check_bindings(s, error) : ln_watch_begin(&s->watch, config, error);
    return status == LINNET_OK ? s->run(s, submits, error) : status;
}

linnet_status linnet_run_with(linnet_session *s, const linnet_run_config *config, linnet_error *error) {
    LN_WANT_ERROR(error);
    if (s == NULL) return ln_fail(error, LINNET_INVALID_ARGUMENT, "linnet_run: `session` must not be NULL");
    return ln_run(s, config, false, error);
}

linnet_status linnet_run(linnet_session *s, linnet_error *error) { return linnet_run_with(s, NULL, error); }
