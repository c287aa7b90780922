/* digest.c - linnet's 128-bit digest, compiled into this library too because liblinnet does not export it.
 * It detects accidental differences between values and manifests. It is not cryptographic. */
#include "sync/codec/digest.h"

#define ln_digest ln_sync_digest
#include "base/digest.c"
