/* host_memory.h - the memory of a host's clients: counted, limited, and given by numbers that clients choose. */
#ifndef LN_REMOTE_HOST_MEMORY_H
#define LN_REMOTE_HOST_MEMORY_H

#include "remote/host_state.h"

/* An allocator that counts for the host, and returns NULL when the host's limit would be passed. */
linnet_allocator ln_host_allocator(ln_host *host);
/* The error of a host that cannot lend so many bytes more. */
linnet_status ln_host_no_memory(const ln_host *host, uint64_t bytes, linnet_error *error);
linnet_status ln_host_allocate(ln_host *host, host_client *client, uint64_t id, uint64_t bytes, linnet_error *error);
/* Frees a buffer. Fails if a piece is bound to it; an unknown number does nothing. */
linnet_status ln_host_release(ln_host *host, host_client *client, uint64_t id, linnet_error *error);
/* Notes that a piece is, or is no longer, bound to a buffer. Returns false for an unknown number. */
bool ln_host_use(host_client *client, uint64_t id, int change);
void ln_host_release_all(ln_host *host, host_client *client);
/* Returns the memory at `offset` of a buffer if `bytes` bytes are there; NULL: `error` says what is wrong. */
unsigned char *ln_host_span(host_client *client, uint64_t id, uint64_t offset, uint64_t bytes, linnet_error *error);

#endif
