/* posix_metrics.h - serves GET /metrics over HTTP/1.1 within the server's loop. It allows a few connections, and each
 * gets one short answer. */
#ifndef LN_SYNC_POSIX_METRICS_H
#define LN_SYNC_POSIX_METRICS_H

#include "net/posix_poller.h"
#include "net/transport.h"
#include "sync/server/server.h"

typedef struct ln_sync_metrics ln_sync_metrics;

/* Listens at the address. The poller watches the listener; the user pointer of its events is `metrics` itself. Errors:
 * those of ln_net_listen. */
linnet_status ln_sync_metrics_create(const char *address, bool insecure, ln_net_poller *poller, ln_sync_metrics **out,
                                     linnet_error *error);
void ln_sync_metrics_free(ln_sync_metrics *metrics);
const char *ln_sync_metrics_address(const ln_sync_metrics *metrics);
/* Tells whether the ready descriptor belongs to `metrics`; if so, serves it. */
bool ln_sync_metrics_ready(ln_sync_metrics *metrics, void *user, ln_sync_server *server, uint64_t now);
/* Closes connections that are too old. */
void ln_sync_metrics_tick(ln_sync_metrics *metrics, uint64_t now);

#endif
