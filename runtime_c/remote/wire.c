/* wire.c - the tables of the protocol between a client and a host. */
#include "remote/wire.h"

static const ln_net_message messages[LN_REMOTE_TYPES] = {
    [LN_REMOTE_HELLO] = {"HELLO", false, false, 0},   [LN_REMOTE_WELCOME] = {"WELCOME", false, false, 0},
    [LN_REMOTE_REFUSE] = {"REFUSE", false, false, 0}, [LN_REMOTE_SUBMIT] = {"SUBMIT", true, false, 0},
    [LN_REMOTE_ANSWER] = {"ANSWER", true, false, 0},  [LN_REMOTE_PIECE] = {"PIECE", true, false, 0},
    [LN_REMOTE_RECIPE] = {"RECIPE", true, false, 0},  [LN_REMOTE_CONSTANT] = {"CONSTANT", true, false, 0},
};

const ln_net_protocol ln_remote_protocol = {
    .messages = messages,
    .count = LN_REMOTE_TYPES,
    .encodings = 1,
    .handshake = LN_NET_BIT(LN_REMOTE_HELLO) | LN_NET_BIT(LN_REMOTE_WELCOME) | LN_NET_BIT(LN_REMOTE_REFUSE),
};

const unsigned char ln_remote_words[LN_REMOTE_CODES] = {
    [LN_REMOTE_ALLOCATE] = 2, [LN_REMOTE_RELEASE] = 1, [LN_REMOTE_PREPARE] = 8,  [LN_REMOTE_UNPREPARE] = 1,
    [LN_REMOTE_UPLOAD] = 3,   [LN_REMOTE_RUN] = 1,     [LN_REMOTE_DOWNLOAD] = 3, [LN_REMOTE_COPY] = 5,
    [LN_REMOTE_NOTHING] = 0,  [LN_REMOTE_PREDICT] = 3,
};
