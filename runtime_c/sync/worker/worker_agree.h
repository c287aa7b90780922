/* worker_agree.h - the handshake with a server, and its refusals. */
#ifndef LN_SYNC_WORKER_AGREE_H
#define LN_SYNC_WORKER_AGREE_H

#include "sync/worker/worker.h"

/* Queues HELLO for a new connection. */
void ln_worker_greet(worker_link *link);
/* Handle the messages WELCOME, TENSORS and REFUSE. worker_core.c says when these functions are called. */
ln_net_refusal ln_worker_take_welcome(worker_link *link, const ln_net_header *header, const void *payload);
ln_net_refusal ln_worker_take_tensors(worker_link *link, const ln_net_header *header, const void *payload);
ln_net_refusal ln_worker_take_refuse(worker_link *link, const ln_net_header *header, const void *payload);

#endif
