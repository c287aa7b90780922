/* version.c - the release number of liblinnet_sync.
 * It is the number of linnet.h, because both libraries are released together. */
#include "linnet_sync.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *linnet_sync_version(void) {
    return TEXT(LINNET_VERSION_MAJOR) "." TEXT(LINNET_VERSION_MINOR) "." TEXT(LINNET_VERSION_PATCH);
}
