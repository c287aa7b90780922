/* posix_metrics.h - serves GET /metrics over HTTP/1.1 within the server's loop. Only a few connections may be open at a
 * time, and each gets one short answer. */
#ifndef LN_SYNC_POSIX_METRICS_H
#define LN_SYNC_POSIX_METRICS_H

#include "net/posix_poller.h"
#include "net/transport.h"
#include "sync/server/server.h"

typedef struct ln_sync_metrics ln_sync_metrics;

/* Listens at the address, and adds the listener to the poller, which must outlive `metrics`. Errors: those of
 * ln_net_listen. */
linnet_status ln_sync_metrics_create(const char *address, bool insecure, ln_net_poller *poller, ln_sync_metrics **out,
                                     linnet_error *error);
void ln_sync_metrics_free(ln_sync_metrics *metrics);
/* Returns the address, with the port that the system chose. */
const char *ln_sync_metrics_address(const ln_sync_metrics *metrics);
/* Call this for each event of the poller, with its user pointer. If the event belongs to `metrics`, serves the
 * connection and returns true. Otherwise returns false. */
bool ln_sync_metrics_ready(ln_sync_metrics *metrics, void *user, ln_sync_server *server, uint64_t now);
/* Closes connections that have been open for too long. Call this about once a second. */
void ln_sync_metrics_tick(ln_sync_metrics *metrics, uint64_t now);

#endif
