/* error.h - fills the public error record with formatted texts, by means of linnet_error_begin and linnet_error_add.
 * First call ln_sync_fail, then the functions for the fields that help the user. A text that is too long for its field
 * is truncated. Each function returns the record's status, so that a caller can return the result of its last call.
 * `error` may be NULL in all functions; only ln_sync_fail then knows the status. */
#ifndef LN_NET_ERROR_H
#define LN_NET_ERROR_H

#include "linnet.h"

#if defined(__GNUC__)
#define LN_SYNC_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LN_SYNC_PRINTF(text, first)
#endif

/* Begins a record with a sentence that says what went wrong, and empties its other fields. */
linnet_status ln_sync_fail(linnet_error *error, linnet_status status, const char *what, ...) LN_SYNC_PRINTF(3, 4);
/* A public function begins with LN_SYNC_WANT_ERROR. If the caller gave no record, the function then uses a record of
 * its own, so that the functions below can return the status that is stored in it. */
#define LN_SYNC_WANT_ERROR(error)                                                                                      \
    linnet_error ln_sync_own_error;                                                                                    \
    if (!(error)) (error) = &ln_sync_own_error
/* Says where the error is: names an address, a file, a variable or a signature. */
linnet_status ln_sync_at(linnet_error *error, const char *name);
/* Say what was expected, what came instead, and what the user can do. */
linnet_status ln_sync_expected(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
linnet_status ln_sync_got(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
linnet_status ln_sync_hint(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);

#endif
