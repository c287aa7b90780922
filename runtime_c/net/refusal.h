/* refusal.h - the reasons why a side ends a connection, and REFUSE, the last message that this side sends. */
#ifndef LN_NET_REFUSAL_H
#define LN_NET_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* docs/protocol.md describes the reasons. Their numbers are sent in REFUSE, so they never change. */
typedef enum ln_net_refusal {
    LN_NET_FINE = 0, /* there is no reason to refuse; never sent */
    LN_NET_BAD_VERSION = 1,
    LN_NET_UNKNOWN_JOB,
    LN_NET_MODEL_DIFFERS,
    LN_NET_IN_USE,
    LN_NET_FULL,
    LN_NET_NOT_AUTHENTICATED,
    LN_NET_SUPERSEDED,
    LN_NET_OVER_LIMIT,
    LN_NET_MALFORMED,
    LN_NET_BAD_CHECKSUM,
    LN_NET_UNEXPECTED,
    LN_NET_UNKNOWN_TENSOR,
    LN_NET_WRONG_LENGTH,
    LN_NET_WRONG_ENCODING,
    LN_NET_TOO_SLOW,
    LN_NET_SHUTTING_DOWN,
    LN_NET_REPLAY,
    LN_NET_OVER,
    LN_NET_BEHIND,
    LN_NET_FORGOTTEN
} ln_net_refusal;

enum {
    LN_NET_REFUSE = 5,       /* the type of REFUSE in every protocol */
    LN_NET_REFUSE_BYTES = 8, /* bytes of the payload before the text */
    LN_NET_REFUSE_TEXT = 240 /* most bytes of the text */
};

/* Returns a name for error messages, such as "checksum", and "unknown" for any other number. Never returns NULL. */
const char *ln_net_refusal_name(ln_net_refusal why);

/* The payload of REFUSE. */
typedef struct ln_net_refuse {
    ln_net_refusal why;
    uint32_t detail;                   /* a number that belongs to the reason; 0 if the reason has none */
    char text[LN_NET_REFUSE_TEXT + 1]; /* an explanation for people; may be empty */
} ln_net_refuse;
/* Writes the payload and returns its number of bytes. `bytes` needs room for LN_NET_REFUSE_BYTES + LN_NET_REFUSE_TEXT
 * bytes. A longer text is truncated. */
size_t ln_net_refuse_write(const ln_net_refuse *refuse, unsigned char *bytes);
/* Returns false if the payload is not valid; *refuse may then be partly filled. */
bool ln_net_refuse_read(ln_net_refuse *refuse, const unsigned char *bytes, size_t length);

#endif
