/* messages.h - the messages of docs/protocol.md, which are listed in messages.inc: their types and names, and which
 * role may send which message. */
#ifndef LN_SYNC_MESSAGES_H
#define LN_SYNC_MESSAGES_H

#include "net/frame.h"

/* The types: LN_SYNC_HELLO and so on. */
typedef enum ln_sync_type {
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text) LN_SYNC_##name = number,
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
    LN_SYNC_TYPES
} ln_sync_type;

enum { LN_SYNC_FLAG_ROWS = 1 }; /* header.flags of DATA and PUSH: the message has some rows of the tensor, not all */

/* What a process does in a job. A client says its role in HELLO. */
typedef enum ln_sync_role {
    LN_SYNC_WORKER,   /* pulls values and pushes gradients */
    LN_SYNC_OBSERVER, /* asks for the status */
    LN_SYNC_PEER,     /* a rank of a ring */
    LN_SYNC_READER,   /* only pulls values */
    LN_SYNC_WRITER,   /* pulls values and puts values */
    LN_SYNC_SERVER    /* sends WELCOME instead of HELLO, so no HELLO has this role */
} ln_sync_role;

/* Macros for lists that are made from messages.inc. LN_BY_CLIENT_##senders(x) is x if a client may send the message,
 * and otherwise empty. LN_BY_SERVER_##senders(x) is the same for a server. LN_CHUNKS_##kind(x) is x if the message is
 * sent in chunks. */
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

/* The table for streams (net/frame.h). */
extern const ln_net_protocol ln_sync_protocol;

/* Tells whether messages of this type are sent in chunks. */
bool ln_sync_is_bulk(uint8_t type);
/* Returns a name for error messages, such as "PUSH". Never returns NULL. */
const char *ln_sync_type_name(uint8_t type);
/* Returns the set of messages that a process of this role may send after the handshake. */
uint64_t ln_sync_sent_by(ln_sync_role role);

#endif
