/* linnet_sync.h - the public C API of liblinnet_sync: variables shared by many machines that train together.
 * A second library over linnet.h; the conventions of linnet.h hold here too. docs/protocol.md is what it speaks. */
#ifndef LINNET_SYNC_H
#define LINNET_SYNC_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0": of this library; programs that use both libraries hold it against linnet_version(). */
LINNET_API const char *linnet_sync_version(void);

#ifdef __cplusplus
}
#endif

#endif
