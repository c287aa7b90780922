/* tuning.h - the choice of kernels by a tuning file (docs/tuning.md), and the key by which such a file names a call. */
#ifndef LN_TUNING_H
#define LN_TUNING_H

#include "base/log.h"
#include "base/memory.h"
#include "kernel/cost.h"

typedef struct ln_tuning ln_tuning; /* immutable */

/* Reads the text of a tuning file. Lines whose kernel this build does not have are left out, with a warning. *out is
 * NULL if no line names a kernel. *machine, the built-in rates of a machine, becomes a copy with the rates of the file
 * if it has some. Everything is in `pool`. Errors: CORRUPT, NEWER_FORMAT, OUT_OF_MEMORY, UNSUPPORTED (the build has no
 * LINNET_TUNING). */
linnet_status ln_tuning_read(const char *text, ln_pool *pool, const ln_log_target *log, const ln_tuning **out,
                             const struct ln_machine **machine, linnet_error *error);
/* Returns the kernel that the file names for the call; NULL: none. It may be one that cannot run the call. */
const ln_kernel *ln_tuning_find(const ln_tuning *tuning, const ln_call *call);
/* Returns the kernel of least cost, or the one that the file names if it can run the call. `tuning` may be NULL. *ns
 * (may be NULL) becomes its cost. */
const ln_kernel *ln_tuned_kernel(const ln_tuning *tuning, const ln_call *call, bool reference_only, double *ns);

/* Writes the key of a call to `text`, as linnet_plan_get_key does, and returns the hash of the key. `length` may be
 * NULL. */
uint64_t ln_call_key(const ln_call *call, char *text, size_t size, size_t *length);

#endif
