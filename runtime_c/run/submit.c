/* submit.c - submits a run, for whose end the caller waits later. A submitted run skips the waits at the end of its
 * program; all other steps run as usual. */
#include "run/submit.h"

#include "run/drive_devices.h"
#include "run/run.h"
#include "run/watch.h"
#include "linnet_ext.h"

void ln_submit_prepare(linnet_session *s) {
    const ln_program *p = &s->plan->program;
    int32_t last = p->n_steps;
    while (last > 0 && p->steps[last - 1].kind == LN_STEP_WAIT) --last;
    for (int32_t d = 0; d < s->plan->n_devices; ++d)
        s->releases_io |= s->plan->devices[d].limits.shared && s->plan->devices[d].is.host_release != NULL;
    /* These runs cannot end before their last wait, because the host has work to do after it: it measures, stores
     * variables, or plans the rest of the graph. */
    if (s->releases_io || s->trace || s->count_special || s->exclusive || p->rest != NULL || p->n_dims > 0 ||
        p->n_moves > 0)
        return;
    s->waits = p->n_steps - last;
    s->stacks = true;
    for (int32_t i = 0; i < last; ++i)
        s->stacks &= p->steps[i].kind >= LN_STEP_UPLOAD && p->steps[i].kind <= LN_STEP_DEVICE &&
                     p->steps[i].kind != LN_STEP_WAIT;
}

linnet_status linnet_session_submit(linnet_session *s, linnet_error *error) {
    LN_WANT_ERROR(error);
    if (s == NULL) return ln_null_argument(error, "linnet_session_submit", "session");
    return ln_run(s, NULL, true, error);
}

linnet_status linnet_session_wait(linnet_session *s, const linnet_run_config *config, linnet_error *error) {
    LN_WANT_ERROR(error);
    if (s == NULL) return ln_null_argument(error, "linnet_session_wait", "session");
    const linnet_status status = ln_watch_begin(&s->watch, config, error);
    return LN_HAS_DEVICES && status == LINNET_OK && s->pending ? ln_drain(s, error) : status;
}
