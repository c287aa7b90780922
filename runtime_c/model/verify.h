/* verify.h - checks the bytes of a file against their digests. */
#ifndef LN_VERIFY_H
#define LN_VERIFY_H

#include "model/graph.h"
#include "linnet_ext.h"

/* Compares the bytes of all segments with their digests, which reads the whole file. If the segments are in order, also
 * checks that the bytes between them are 0. With `strict`, a segment without a digest and a newer format are errors,
 * too. *out receives counts; `out` may be NULL. Errors: CORRUPT (with the first problem), NEWER_FORMAT. */
linnet_status ln_verify_bytes(const linnet_model *model, bool strict, linnet_verified *out, linnet_error *error);

#endif
