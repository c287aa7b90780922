/* refusal.h - why a side ends a connection: the reasons, and REFUSE, the last message that it sends. */
#ifndef LN_NET_REFUSAL_H
#define LN_NET_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ln_sync_refusal {
    LN_SYNC_FINE = 0,
    LN_SYNC_BAD_VERSION = 1,
    LN_SYNC_UNKNOWN_JOB,
    LN_SYNC_MODEL_DIFFERS,
    LN_SYNC_IN_USE,
    LN_SYNC_FULL,
    LN_SYNC_NOT_AUTHENTICATED,
    LN_SYNC_SUPERSEDED,
    LN_SYNC_OVER_LIMIT,
    LN_SYNC_MALFORMED,
    LN_SYNC_BAD_CHECKSUM,
    LN_SYNC_UNEXPECTED,
    LN_SYNC_UNKNOWN_TENSOR,
    LN_SYNC_WRONG_LENGTH,
    LN_SYNC_WRONG_ENCODING,
    LN_SYNC_TOO_SLOW,
    LN_SYNC_SHUTTING_DOWN,
    LN_SYNC_REPLAY,
    LN_SYNC_OVER,
    LN_SYNC_BEHIND,
    LN_SYNC_FORGOTTEN
} ln_sync_refusal;

enum {
    LN_NET_REFUSE = 5,        /* the type of the message in every protocol */
    LN_SYNC_REFUSE_BYTES = 8, /* and the text */
    LN_SYNC_REFUSE_TEXT = 240
};

/* Returns a name for error messages, such as "checksum"; never NULL. */
const char *ln_sync_refusal_name(ln_sync_refusal why);

/* The payload of REFUSE. */
typedef struct ln_sync_refuse {
    ln_sync_refusal why;
    uint32_t detail;
    char text[LN_SYNC_REFUSE_TEXT + 1];
} ln_sync_refuse;
/* Returns the number of bytes. A longer text is truncated. */
size_t ln_sync_refuse_write(const ln_sync_refuse *refuse, unsigned char *bytes);
bool ln_sync_refuse_read(ln_sync_refuse *refuse, const unsigned char *bytes, size_t length);

#endif
