/* watch.h - ends a run early because of a flag, a deadline, or a poll. */
#ifndef LN_WATCH_H
#define LN_WATCH_H

#include "base/platform_machine.h"
#include "plan/session_layout.h"

/* Sets the conditions that may end a run. config NULL: there are none. Errors: INVALID_ARGUMENT. */
linnet_status ln_watch_begin(ln_watch *watch, const linnet_run_config *config, linnet_error *error);
/* Returns an error if the run has to end before `step`. step NULL: the run waits for the store. Errors: CANCELLED,
 * DEADLINE_EXCEEDED. */
linnet_status ln_watch_look(ln_watch *watch, const ln_step *step, linnet_error *error);
/* Returns the nanoseconds until the deadline, but at most `most`. */
uint64_t ln_watch_left(const ln_watch *watch, uint64_t most);
static inline bool ln_watch_cancelled(const ln_watch *watch) {
    return __atomic_load_n(watch->cancel, __ATOMIC_RELAXED) != 0; /* the caller may not use <stdatomic.h> */
}
/* Tells whether the run should end. Threads other than the one that has begun the run call this; that thread finds out
 * the reason afterwards. */
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
