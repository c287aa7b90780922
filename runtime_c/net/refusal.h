/* refusal.h - why a side ends a connection: the reasons, and REFUSE, the last message that it sends. */
#ifndef LN_NET_REFUSAL_H
#define LN_NET_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ln_net_refusal {
    LN_NET_FINE = 0,
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
    LN_NET_REFUSE = 5,       /* the type of the message in every protocol */
    LN_NET_REFUSE_BYTES = 8, /* and the text */
    LN_NET_REFUSE_TEXT = 240
};

/* Returns a name for error messages, such as "checksum"; never NULL. */
const char *ln_net_refusal_name(ln_net_refusal why);

/* The payload of REFUSE. */
typedef struct ln_net_refuse {
    ln_net_refusal why;
    uint32_t detail;
    char text[LN_NET_REFUSE_TEXT + 1];
} ln_net_refuse;
/* Returns the number of bytes. A longer text is truncated. */
size_t ln_net_refuse_write(const ln_net_refuse *refuse, unsigned char *bytes);
bool ln_net_refuse_read(ln_net_refuse *refuse, const unsigned char *bytes, size_t length);

#endif
