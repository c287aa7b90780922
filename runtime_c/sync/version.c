/* version.c - which release of liblinnet_sync this is.
 * The number is that of linnet.h: both libraries are released together. */
#include "linnet_sync.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *linnet_sync_version(void) {
    return TEXT(LINNET_VERSION_MAJOR) "." TEXT(LINNET_VERSION_MINOR) "." TEXT(LINNET_VERSION_PATCH);
}
