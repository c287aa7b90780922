/* server_memory.h - buffers, whose bytes count towards max_bytes. */
#ifndef LN_SYNC_SERVER_MEMORY_H
#define LN_SYNC_SERVER_MEMORY_H

#include "sync/server/server.h"

/* Makes the buffer at least `bytes` long. If the buffer has to grow, its contents are lost. Returns false if out of
 * memory; the buffer is then empty. The function does not check max_bytes. */
bool ln_sync_grow(ln_sync_server *server, sync_buffer *buffer, uint64_t bytes);
/* Frees the memory of the buffer. */
void ln_sync_empty(ln_sync_server *server, sync_buffer *buffer);
/* Tells whether `bytes` more bytes would not exceed max_bytes. */
bool ln_sync_fits(const ln_sync_server *server, uint64_t bytes);
/* Frees the buffers that have no data now and only wait for later steps. */
void ln_sync_trim(ln_sync_server *server);

#endif
