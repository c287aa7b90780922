/* error.h - fills the public error record with formatted texts (linnet_error_begin and linnet_error_add write it).
 * A text that is too long for its field is truncated. `error` may be NULL everywhere. Each function returns the
 * record's status. */
#ifndef LN_NET_ERROR_H
#define LN_NET_ERROR_H

#include "linnet.h"

#if defined(__GNUC__)
#define LN_SYNC_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LN_SYNC_PRINTF(text, first)
#endif

/* Begins a record with what went wrong. */
linnet_status ln_sync_fail(linnet_error *error, linnet_status status, const char *what, ...) LN_SYNC_PRINTF(3, 4);
/* Public functions replace NULL with a record of their own, from which the helpers below return the code. */
#define LN_SYNC_WANT_ERROR(error)                                                                                      \
    linnet_error ln_sync_own_error;                                                                                    \
    if (!(error)) (error) = &ln_sync_own_error
/* Names the address, file, variable or signature concerned. */
linnet_status ln_sync_at(linnet_error *error, const char *name);
linnet_status ln_sync_expected(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
linnet_status ln_sync_got(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
linnet_status ln_sync_hint(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);

#endif
