/* server_messages.h - what a server does with each message that clients send: one function per line of messages.inc.
 * ln_sync_take_NAME is called with each complete frame. ln_sync_place_NAME is called before a chunk is received, and
 * chooses where the bytes of the chunk are written. They are the functions `frame` and `place` of net/handler.h, which
 * says what they return. The stream has already checked that the client may send the message now. */
#ifndef LN_SYNC_SERVER_MESSAGES_H
#define LN_SYNC_SERVER_MESSAGES_H

#include "sync/server/server_state.h"

typedef ln_net_refusal ln_sync_take(sync_connection *c, const ln_net_header *header, const void *payload);
typedef ln_net_refusal ln_sync_place(sync_connection *c, const ln_net_header *header, void **destination);

#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text)                                 \
    LN_BY_CLIENT_##senders(ln_sync_take ln_sync_take_##lower;)                                                         \
        LN_BY_CLIENT_##senders(LN_CHUNKS_##kind(ln_sync_place ln_sync_place_##lower;))
#include "sync/codec/messages.inc"
#undef LN_MESSAGE

#endif
