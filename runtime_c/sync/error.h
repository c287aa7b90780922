/* error.h - filling the public error record: `ln_sync_fail` begins it, the others add to it.
 * What, where, expected, got, what to do: the same record as liblinnet's, made without its internals. */
#ifndef LN_SYNC_ERROR_H
#define LN_SYNC_ERROR_H

#include "linnet.h"

#if defined(__GNUC__)
#define LN_SYNC_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define LN_SYNC_PRINTF(a, b)
#endif

/* Begins the record (error may be NULL: then nothing is written, here and below) and returns `code`. */
linnet_status ln_sync_fail(linnet_error *error, linnet_status code, const char *what, ...) LN_SYNC_PRINTF(3, 4);
/* Add to the record. */
void ln_sync_expected(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
void ln_sync_got(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
void ln_sync_hint(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);
/* Name of the tensor, file or peer concerned. */
void ln_sync_at(linnet_error *error, const char *format, ...) LN_SYNC_PRINTF(2, 3);

#endif
