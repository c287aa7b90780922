/* error.h - fills the public error record. A function fails with `return ln_fail(error, CODE, ...)`, or calls ln_fail
 * and then the functions that add fields. The fields say what failed, where, what was expected, what came instead, and
 * what to do. A text that is too long for its field is truncated. */
#ifndef LN_ERROR_H
#define LN_ERROR_H

#include "base/types.h"

#if defined(__GNUC__)
#define LN_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define LN_PRINTF(a, b)
#endif

/* Empties the record, stores `code` and the text, and returns `code`. `what` is a printf format. `error` may be NULL.
 */
linnet_status ln_fail(linnet_error *error, linnet_status code, const char *what, ...) LN_PRINTF(3, 4);
/* Reports that an argument of a public function must not be NULL. Returns INVALID_ARGUMENT. */
linnet_status ln_null_argument(linnet_error *error, const char *function, const char *argument);
/* Reports that this build leaves out the part `what`; `option` is the CMake option that includes the part. Returns
 * UNSUPPORTED. */
linnet_status ln_left_out(const char *what, const char *option, linnet_error *error);
/* The next functions add fields to a record that ln_fail has begun. They return the record's code, so that `return
 * ln_hint(error, ...)` is possible. `error` may be NULL; the code is then unknown, and they return INVALID_ARGUMENT.
 * Therefore a public function begins with LN_WANT_ERROR(error), which replaces NULL with a record of its own. */
#define LN_WANT_ERROR(error)                                                                                           \
    linnet_error ln_own_error;                                                                                         \
    if ((error) == NULL) (error) = &ln_own_error
linnet_status ln_expected(linnet_error *error, const char *format, ...) LN_PRINTF(2, 3);
linnet_status ln_got(linnet_error *error, const char *format, ...) LN_PRINTF(2, 3);
linnet_status ln_hint(linnet_error *error, const char *format, ...) LN_PRINTF(2, 3);
/* Say where the error is: at a tensor or variable, or at a node, whose number and name are given. */
void ln_at_tensor(linnet_error *error, const char *name);
void ln_at_node(linnet_error *error, int32_t op_index, const char *name);
/* Writes a shape such as "[1, 3, ?, 224]" into `text`, which has `size` bytes, and returns `text`. */
const char *ln_shape_text(const int64_t *dims, int rank, char *text, size_t size);

#endif
