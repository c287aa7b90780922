/* messages.h - the messages of docs/protocol.md, made from messages.inc: their types, their names, and who may send
 * which. */
#ifndef LN_SYNC_MESSAGES_H
#define LN_SYNC_MESSAGES_H

#include "net/frame.h"

typedef enum ln_sync_type {
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text) LN_SYNC_##name = number,
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
    LN_SYNC_TYPES
} ln_sync_type;

enum { LN_SYNC_FLAG_ROWS = 1 }; /* header.flags of DATA and PUSH: the message has some rows of the tensor, not all */

/* Which side a process is on, as it says in HELLO. */
typedef enum ln_sync_role {
    LN_SYNC_WORKER,
    LN_SYNC_OBSERVER,
    LN_SYNC_PEER,
    LN_SYNC_READER,
    LN_SYNC_WRITER,
    LN_SYNC_SERVER /* says WELCOME instead, so no HELLO has this role */
} ln_sync_role;

/* For lists that are made from messages.inc: LN_BY_CLIENT_##senders(...) is its argument if a client may send the
 * message, LN_BY_SERVER_##senders(...) if a server may, and LN_CHUNKS_##kind(...) if it is sent in chunks. */
#define LN_BY_CLIENT_WORKERS(...) __VA_ARGS__
#define LN_BY_CLIENT_WRITERS(...) __VA_ARGS__
#define LN_BY_CLIENT_PULLERS(...) __VA_ARGS__
#define LN_BY_CLIENT_CLIENTS(...) __VA_ARGS__
#define LN_BY_CLIENT_CLIENTS_AND_PEERS(...) __VA_ARGS__
#define LN_BY_CLIENT_ALL(...) __VA_ARGS__
#define LN_BY_CLIENT_SERVER(...)
#define LN_BY_CLIENT_SERVER_AND_PEERS(...)
#define LN_BY_CLIENT_PEERS(...)
#define LN_BY_SERVER_WORKERS(...)
#define LN_BY_SERVER_WRITERS(...)
#define LN_BY_SERVER_PULLERS(...)
#define LN_BY_SERVER_CLIENTS(...)
#define LN_BY_SERVER_CLIENTS_AND_PEERS(...)
#define LN_BY_SERVER_ALL(...) __VA_ARGS__
#define LN_BY_SERVER_SERVER(...) __VA_ARGS__
#define LN_BY_SERVER_SERVER_AND_PEERS(...) __VA_ARGS__
#define LN_BY_SERVER_PEERS(...)
#define LN_CHUNKS_CONTROL(...)
#define LN_CHUNKS_BULK(...) __VA_ARGS__
#define LN_CHUNKS_ENCODED(...) __VA_ARGS__

extern const ln_net_protocol ln_sync_protocol;

bool ln_sync_is_bulk(uint8_t type);
/* Returns a name for error messages, such as "PUSH"; never NULL. */
const char *ln_sync_type_name(uint8_t type);
/* Returns the set of messages that a process of this role may send after the handshake. */
uint64_t ln_sync_sent_by(ln_sync_role role);

#endif
