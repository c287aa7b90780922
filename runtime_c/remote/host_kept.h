/* host_kept.h - values of variables in a host's folder, where they survive the host. */
#ifndef LN_REMOTE_HOST_KEPT_H
#define LN_REMOTE_HOST_KEPT_H

#include "remote/host_state.h"

/* What KEEP and RECALL say. */
typedef struct host_kept {
    const unsigned char *name; /* 16 bytes */
    uint64_t number, buffer, offset, bytes;
} host_kept;

/* Writes bytes of a buffer to the folder. The value with the number before stays. */
linnet_status ln_host_keep(host_connection *c, const host_kept *kept, linnet_error *error);
/* Reads the value with exactly this number into a buffer. Errors: NOT_FOUND, CORRUPT. */
linnet_status ln_host_recall(host_connection *c, const host_kept *kept, linnet_error *error);

#endif
