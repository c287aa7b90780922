/* watch.c - ends a run early because of a flag that another thread sets, a deadline, or a poll. They are checked
 * between steps and iterations, and never after a variable was overwritten, so a run changes either all of its
 * variables or none.
 */
#include "run/watch.h"

#include "base/platform_machine.h"
#include "base/structs.h"

#include <string.h>

enum { POLL_NS = 50000000 };

linnet_status ln_watch_begin(ln_watch *w, const linnet_run_config *given, linnet_error *error) {
    static const int never;
    linnet_run_config taken;
    const linnet_run_config *config = &taken;
    w->on = false;
    if (given == NULL) return LINNET_OK;
    if (LN_TAKE(linnet_run_config, poll_context, &taken, given, error)) return LINNET_INVALID_ARGUMENT;
    w->on = config->cancel != NULL || config->timeout_ns > 0 || config->poll != NULL;
    w->quick = config->timeout_ns > 0 ? LN_WATCH_QUICK - 1 : 0; /* a deadline is checked before the first step */
    w->cancel = config->cancel != NULL ? config->cancel : &never;
    w->begun = config->timeout_ns > 0 ? ln_now_ns() : 0;
    w->deadline = config->timeout_ns == 0 || config->timeout_ns > UINT64_MAX - w->begun ? UINT64_MAX
                                                                                        : w->begun + config->timeout_ns;
    /* The time until the first poll is counted from the first check on, so that short runs read no clock. */
    w->next_poll = 0;
    w->poll = config->poll;
    w->poll_context = config->poll_context;
    return LINNET_OK;
}

static linnet_status end(ln_watch *w, linnet_status status, const ln_step *step, uint64_t now, linnet_error *error) {
    const char *where = step != NULL ? "" : " while it waited for other runs of the same store";
    w->on = false;
    if (status == LINNET_CANCELLED) {
        ln_fail(error, status, "the run was cancelled%s", where);
    } else {
        ln_fail(error, status, "the run exceeded its time limit%s", where);
        ln_expected(error, "at most %.9g ms", 1e-6 * (double)(w->deadline - w->begun));
        ln_got(error, "%.9g ms so far", 1e-6 * (double)(now - w->begun));
    }
    if (step != NULL) ln_at_node(error, step->index, step->name);
    ln_hint(error, "no variable has changed; the session can run again");
    return status;
}

uint64_t ln_watch_left(const ln_watch *w, uint64_t most) {
    if (w->deadline == UINT64_MAX) return most;
    const uint64_t now = ln_now_ns(), left = now < w->deadline ? w->deadline - now : 0;
    return left < most ? left : most;
}

linnet_status ln_watch_look(ln_watch *w, const ln_step *step, linnet_error *error) {
    w->quick = 0;
    if (ln_watch_cancelled(w)) return end(w, LINNET_CANCELLED, step, 0, error);
    if (w->deadline < UINT64_MAX || w->poll != NULL) {
        const uint64_t now = ln_now_ns();
        if (now >= w->deadline) return end(w, LINNET_DEADLINE_EXCEEDED, step, now, error);
        if (w->poll != NULL && now >= w->next_poll) {
            if (w->next_poll > 0 && w->poll(w->poll_context) != 0) return end(w, LINNET_CANCELLED, step, now, error);
            w->next_poll = now + POLL_NS;
        }
    }
    if (step != NULL && step->updates && step->kind < LN_STEP_LOOP)
        w->on = false; /* not before a loop, which writes variables only at its end */
    return LINNET_OK;
}
