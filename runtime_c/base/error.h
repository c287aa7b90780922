/* error.h - fills the public error record. A function fails with `return ln_fail(error, CODE, ...)`.
 * Every message says what failed, where, what was expected, what was found, and what to do. */
#ifndef LN_ERROR_H
#define LN_ERROR_H

#include "base/types.h"

#if defined(__GNUC__)
#define LN_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define LN_PRINTF(a, b)
#endif

/* Starts the record (error may be NULL) and returns `code`. `what` is a printf format. */
linnet_status ln_fail(linnet_error *error, linnet_status code, const char *what, ...) LN_PRINTF(3, 4);
/* INVALID_ARGUMENT for an argument that must not be NULL. */
linnet_status ln_null_argument(linnet_error *error, const char *function, const char *argument);
/* UNSUPPORTED for a part that the build leaves out, with the option of CMake that puts it in. */
linnet_status ln_left_out(const char *what, const char *option, linnet_error *error);
/* Add to a record. All of them accept NULL. They return the record's code so that `return ln_hint(error, ...)` is
 * possible. Without a record the code is unknown and INVALID_ARGUMENT comes back, so public functions replace NULL with
 * a record of their own: LN_WANT_ERROR(error). */
#define LN_WANT_ERROR(error)                                                                                           \
    linnet_error ln_own_error;                                                                                         \
    if ((error) == NULL) (error) = &ln_own_error
linnet_status ln_expected(linnet_error *error, const char *format, ...) LN_PRINTF(2, 3);
linnet_status ln_got(linnet_error *error, const char *format, ...) LN_PRINTF(2, 3);
linnet_status ln_hint(linnet_error *error, const char *format, ...) LN_PRINTF(2, 3);
void ln_at_tensor(linnet_error *error, const char *name);
void ln_at_node(linnet_error *error, int32_t op_index, const char *name);
/* Writes a shape such as "[1, 3, ?, 224]" into `text` and returns `text`. */
const char *ln_shape_text(const int64_t *dims, int rank, char *text, size_t size);

#endif
