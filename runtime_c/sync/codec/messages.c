/* messages.c - the tables that are made from messages.inc, and the sets of messages that a role may send. */
#include "sync/codec/messages.h"

#include "sync/codec/encoding.h"

/* The words of messages.inc. A set of roles has a bit for each role. */
enum { CONTROL, BULK, ENCODED };
enum { HANDSHAKE = 1, OPEN = 2, ALWAYS = HANDSHAKE | OPEN };
enum {
    WORKERS = 1 << LN_SYNC_WORKER,
    PEERS = 1 << LN_SYNC_PEER,
    SERVER = 1 << LN_SYNC_SERVER,
    WRITERS = WORKERS | 1 << LN_SYNC_WRITER,
    PULLERS = WRITERS | 1 << LN_SYNC_READER,
    CLIENTS = PULLERS | 1 << LN_SYNC_OBSERVER,
    CLIENTS_AND_PEERS = CLIENTS | PEERS,
    SERVER_AND_PEERS = SERVER | PEERS,
    ALL = CLIENTS | PEERS | SERVER
};

static const ln_net_message messages[LN_SYNC_TYPES] = {
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text)                                 \
    [number] = {#name, kind != CONTROL, kind == ENCODED, flags},
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
};

static const struct {
    uint8_t phase, senders;
} allowed[LN_SYNC_TYPES] = {
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text) [number] = {phase, senders},
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
};

_Static_assert(LN_SYNC_TYPES <= 64, "a set of messages has 64 bits");
_Static_assert((int)LN_SYNC_REFUSE == (int)LN_NET_REFUSE, "the number of REFUSE is that of every protocol");

const ln_net_protocol ln_sync_protocol = {
    .messages = messages, .count = LN_SYNC_TYPES, .encodings = LN_SYNC_ENCODINGS, .handshake = 0
#define LN_MESSAGE(number, name, lower, kind, flags, phase, senders, form, size, text)                                 \
    | (phase & HANDSHAKE ? LN_NET_BIT(number) : 0)
#include "sync/codec/messages.inc"
#undef LN_MESSAGE
};

bool ln_sync_is_bulk(uint8_t type) { return type < LN_SYNC_TYPES && messages[type].bulk; }

const char *ln_sync_type_name(uint8_t type) {
    return type < LN_SYNC_TYPES && messages[type].name ? messages[type].name : "unknown";
}

uint64_t ln_sync_sent_by(ln_sync_role role) {
    uint64_t set = 0;
    for (int type = 0; type < LN_SYNC_TYPES; type++)
        if (allowed[type].phase & OPEN && allowed[type].senders >> role & 1) set |= LN_NET_BIT(type);
    return set;
}
