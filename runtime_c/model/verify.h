/* verify.h - checks the bytes of a file against their digests. */
#ifndef LN_VERIFY_H
#define LN_VERIFY_H

#include "model/graph.h"
#include "linnet_ext.h"

/* Checks the bytes of segments against their digests, and the zeros around them. With `strict`, a segment
 * without a digest or a newer format is also an error. `out` may be NULL. Errors: CORRUPT (the first problem),
 * NEWER_FORMAT. */
linnet_status ln_verify_bytes(const linnet_model *model, bool strict, linnet_verified *out, linnet_error *error);

#endif
