/* segment.h - segments whose shapes depend on data, in a bounded cache. */
#ifndef LN_SEGMENT_H
#define LN_SEGMENT_H

#include "plan/session_layout.h"

/* Returns the bytes that later segments may still allocate within max_bytes; UINT64_MAX without a limit. */
uint64_t ln_session_free(const linnet_session *session);
/* Makes room for `bytes` more bytes. It drops later segments on which the run up to `last` does not depend.
   The least recently run segment is dropped first. Errors: TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_segments_make_room(linnet_session *session, ln_instance *last, uint64_t bytes, linnet_error *error);
/* Makes room for `bytes` bytes of a growing result and keeps its contents. Errors: TOO_LARGE, OUT_OF_MEMORY.
 */
linnet_status ln_instance_grow(linnet_session *session, ln_instance *instance, ln_grown *grown, size_t bytes,
                               linnet_error *error);
/* Finds the instance that continues after `instance`. Plans the segment if its key is new. */
linnet_status ln_segment_next(linnet_session *session, ln_instance *instance, ln_instance **next, linnet_error *error);
void ln_segments_free(linnet_session *session, ln_instance *instance); /* frees all children of the instance */

#endif
