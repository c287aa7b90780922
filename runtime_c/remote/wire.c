/* wire.c - the tables of the protocol between a client and a host. */
#include "remote/wire.h"

#include <string.h>

static const ln_net_message messages[LN_REMOTE_TYPES] = {
    [LN_REMOTE_HELLO] = {"HELLO", false, false, 0},   [LN_REMOTE_WELCOME] = {"WELCOME", false, false, 0},
    [LN_REMOTE_REFUSE] = {"REFUSE", false, false, 0}, [LN_REMOTE_SUBMIT] = {"SUBMIT", true, false, 0},
    [LN_REMOTE_ANSWER] = {"ANSWER", true, false, 0},  [LN_REMOTE_PIECE] = {"PIECE", true, false, 0},
    [LN_REMOTE_RECIPE] = {"RECIPE", true, false, 0},  [LN_REMOTE_CONSTANT] = {"CONSTANT", true, false, 0},
    [LN_REMOTE_JOIN] = {"JOIN", false, false, 0},
};

const ln_net_protocol ln_remote_protocol = {
    .messages = messages,
    .count = LN_REMOTE_TYPES,
    .encodings = 1,
    .handshake = LN_NET_BIT(LN_REMOTE_HELLO) | LN_NET_BIT(LN_REMOTE_WELCOME) | LN_NET_BIT(LN_REMOTE_REFUSE) |
                 LN_NET_BIT(LN_REMOTE_JOIN),
};

const unsigned char ln_remote_words[LN_REMOTE_CODES] = {
    [LN_REMOTE_ALLOCATE] = 2, [LN_REMOTE_RELEASE] = 1, [LN_REMOTE_PREPARE] = 8,  [LN_REMOTE_UNPREPARE] = 1,
    [LN_REMOTE_UPLOAD] = 3,   [LN_REMOTE_RUN] = 1,     [LN_REMOTE_DOWNLOAD] = 3, [LN_REMOTE_COPY] = 5,
    [LN_REMOTE_NOTHING] = 0,  [LN_REMOTE_PREDICT] = 3, [LN_REMOTE_PEER] = 4,     [LN_REMOTE_SEND] = 5,
    [LN_REMOTE_FETCH] = 7,    [LN_REMOTE_TAKE] = 4,    [LN_REMOTE_KEEP] = 6,     [LN_REMOTE_RECALL] = 6,
    [LN_REMOTE_ZERO] = 3,     [LN_REMOTE_TIMES] = 3,   [LN_REMOTE_STEPS] = 3,
};

void ln_remote_record_write(const linnet_error *error, unsigned char record[LN_REMOTE_RECORD]) {
    memset(record, 0, LN_REMOTE_RECORD);
    memcpy(record, error->op, sizeof error->op);
    memcpy(record + 48, error->tensor, sizeof error->tensor);
    memcpy(record + 128, error->what, sizeof error->what);
    memcpy(record + 288, error->expected, sizeof error->expected);
    memcpy(record + 384, error->got, sizeof error->got);
    memcpy(record + 480, error->hint, sizeof error->hint);
}

void ln_remote_record_read(const unsigned char record[LN_REMOTE_RECORD], int32_t code, linnet_error *error) {
    *error = (linnet_error){.code = code, .op_index = -1};
    memcpy(error->op, record, sizeof error->op - 1);
    memcpy(error->tensor, record + 48, sizeof error->tensor - 1);
    memcpy(error->what, record + 128, sizeof error->what - 1);
    memcpy(error->expected, record + 288, sizeof error->expected - 1);
    memcpy(error->got, record + 384, sizeof error->got - 1);
    memcpy(error->hint, record + 480, sizeof error->hint - 1);
}
