/* posix_metrics.h - GET /metrics over HTTP/1.1, within the server's loop: a few connections, each one short answer. */
#ifndef LN_SYNC_POSIX_METRICS_H
#define LN_SYNC_POSIX_METRICS_H

#include "sync/posix_poller.h"
#include "sync/server_core.h"
#include "sync/transport.h"

typedef struct ln_sync_metrics ln_sync_metrics;

/* Listens at the address, which the poller then waits for with user `metrics` itself. Errors: those of ln_sync_listen.
 */
linnet_status ln_sync_metrics_create(const char *address, bool insecure, ln_sync_poller *poller, ln_sync_metrics **out,
                                     linnet_error *error);
void ln_sync_metrics_free(ln_sync_metrics *metrics);
const char *ln_sync_metrics_address(const ln_sync_metrics *metrics);
/* Whether what is ready belongs to it; then it was served. */
bool ln_sync_metrics_ready(ln_sync_metrics *metrics, void *user, ln_sync_server *server, uint64_t now);
/* Ends connections that are too old. */
void ln_sync_metrics_tick(ln_sync_metrics *metrics, uint64_t now);

#endif
