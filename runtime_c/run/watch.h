/* watch.h - ends a run early because of a flag, a deadline, or a poll. */
#ifndef LN_WATCH_H
#define LN_WATCH_H

#include "base/platform_machine.h"
#include "plan/session_layout.h"

/* Takes the configuration of a run (NULL: nothing ends it). Errors: INVALID_ARGUMENT. */
linnet_status ln_watch_begin(ln_watch *watch, const linnet_run_config *config, linnet_error *error);
/* Whether the run ends before `step` (NULL: while it waits for the store). Errors: CANCELLED, DEADLINE_EXCEEDED. */
linnet_status ln_watch_look(ln_watch *watch, const ln_step *step, linnet_error *error);
/* Nanoseconds until the deadline, but at most `most`. */
uint64_t ln_watch_left(const ln_watch *watch, uint64_t most);
static inline bool ln_watch_cancelled(const ln_watch *watch) {
    return __atomic_load_n(watch->cancel, __ATOMIC_RELAXED) != 0; /* the caller may not use <stdatomic.h> */
}
/* Tells whether the run should end, for threads that cannot say why: the thread that has begun the run looks
 * afterwards. */
static inline bool ln_watch_over(const ln_watch *watch, bool slow) {
    return watch->on &&
           (ln_watch_cancelled(watch) || (slow && watch->deadline != UINT64_MAX && ln_now_ns() >= watch->deadline));
}
/* Called before each step and iteration. */
static inline linnet_status ln_watch_step(ln_watch *watch, const ln_step *step, bool slow, linnet_error *error) {
    if (!watch->on || (!ln_watch_cancelled(watch) && !slow && ++watch->quick < LN_WATCH_QUICK)) return LINNET_OK;
    return ln_watch_look(watch, step, error);
}

#endif
