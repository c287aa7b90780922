/* host_config.h - what the owner of a host says: where it listens, and what it lends. */
#ifndef LN_REMOTE_HOST_CONFIG_H
#define LN_REMOTE_HOST_CONFIG_H

#include "net/transport.h"

typedef struct ln_host ln_host;

typedef struct ln_host_config {
    const char *address;
    ln_net_security *security;                  /* NULL: only clients on this machine are served */
    bool no_peers;                              /* it sends nothing to other hosts, and fetches nothing from them */
    uint64_t max_bytes;                         /* of all clients together; 0: what the machine has */
    int threads;                                /* of each run; 0: linnet_default_threads */
    double timeout;                             /* of each run, in seconds; 0: none */
    double send_timeout;                        /* how long a client may read nothing of an answer, in seconds */
    const char *tuning;                         /* the text of a tuning file; NULL: none */
    const char *folder;                         /* where pieces stay for the next start; NULL: nowhere */
    uint64_t folder_bytes;                      /* most bytes of the folder; 0: no limit */
    const struct linnet_device *const *devices; /* that run what they can of a piece, besides the CPU */
    int device_count;
} ln_host_config;

#endif
