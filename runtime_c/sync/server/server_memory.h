/* server_memory.h - buffers, whose bytes count towards max_bytes. */
#ifndef LN_SYNC_SERVER_MEMORY_H
#define LN_SYNC_SERVER_MEMORY_H

#include "sync/server/server.h"

/* Makes the buffer at least `bytes` long. Returns false if out of memory. */
bool ln_sync_grow(ln_sync_server *server, sync_buffer *buffer, uint64_t bytes);
void ln_sync_empty(ln_sync_server *server, sync_buffer *buffer);
bool ln_sync_fits(const ln_sync_server *server, uint64_t bytes);
void ln_sync_trim(ln_sync_server *server); /* frees the buffers that were kept for later steps */

#endif
