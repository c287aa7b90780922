/* worker_agree.h - greets a server; the answers are messages (worker_messages.h). */
#ifndef LN_SYNC_WORKER_AGREE_H
#define LN_SYNC_WORKER_AGREE_H

#include "sync/worker/worker.h"

/* Queues HELLO for a new connection. */
void ln_worker_greet(worker_link *link);

#endif
