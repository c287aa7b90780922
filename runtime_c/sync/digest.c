/* digest.c - linnet's 128-bit digest, compiled into this library too: liblinnet does not export its own.
 * It tells values and manifests apart that nobody made alike on purpose; it is no cryptography. */
#define ln_digest ln_sync_digest
#include "core/digest.c"
