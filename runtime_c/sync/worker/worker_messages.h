/* worker_messages.h - what a worker does with each message that servers send: one function per line of messages.inc.
 * ln_worker_take_NAME is called with each complete frame. ln_worker_place_NAME is called before a chunk is received,
 * and chooses where the bytes of the chunk are written. They are the functions `frame` and `place` of net/handler.h,
 * which says what they return. */
#ifndef LN_SYNC_WORKER_MESSAGES_H
#define LN_SYNC_WORKER_MESSAGES_H

#include "sync/worker/worker_state.h"

typedef ln_net_refusal ln_worker_take(worker_link *link, const ln_net_header *header, const void *payload);
typedef ln_net_refusal ln_worker_place(worker_link *link, const ln_net_header *header, void **destination);

#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text)                                 \
    LN_BY_SERVER_##senders(ln_worker_take ln_worker_take_##lower;)                                                     \
        LN_BY_SERVER_##senders(LN_CHUNKS_##kind(ln_worker_place ln_worker_place_##lower;))
#include "sync/codec/messages.inc"
#undef LN_MESSAGE

#endif
