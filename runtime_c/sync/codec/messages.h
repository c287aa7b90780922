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

/* The table for streams (net/frame.h). */
extern const ln_net_protocol ln_sync_protocol;

/* Tells whether messages of this type are sent in chunks. */
bool ln_sync_is_bulk(uint8_t type);
/* Returns a name for error messages, such as "PUSH". Never returns NULL. */
const char *ln_sync_type_name(uint8_t type);
/* Returns the set of messages that a process of this role may send after the handshake. */
uint64_t ln_sync_sent_by(ln_sync_role role);

#endif
