/* pulse.h - tells whether a host still answers: who waits for it asks now and then, by a connection of its own, because
 * the host reads nothing more on a connection while it works on a message of it. */
#ifndef LN_REMOTE_PULSE_H
#define LN_REMOTE_PULSE_H

#include "remote/link.h"

/* What stays the same. `address` and `token` must outlive the pulse. */
typedef struct ln_remote_pulse_place {
    const char *address;
    const ln_net_security *security;
    const unsigned char *token;
    ln_remote_type greeting; /* LN_REMOTE_HELLO or LN_REMOTE_JOIN */
    int lease_ms;            /* how long the host may say nothing while somebody waits for it */
} ln_remote_pulse_place;

typedef struct ln_remote_pulse {
    ln_remote_pulse_place place;
    ln_remote_link *link;         /* NULL: not connected */
    bool welcomed, asked;         /* asked: the host owes an answer */
    int64_t heard, looked, tried; /* in milliseconds: the last sign of life, the last look, the last connection */
} ln_remote_pulse;

/* Nothing is connected before the first question. */
void ln_remote_pulse_init(ln_remote_pulse *pulse, const ln_remote_pulse_place *place);
void ln_remote_pulse_free(ln_remote_pulse *pulse);
/* Notes a sign of life, or that a wait begins. */
void ln_remote_pulse_hear(ln_remote_pulse *pulse);
/* Asks the host if it has said nothing for a while, and fails with LINNET_TIMED_OUT if it has said nothing for the
 * lease. While somebody waits, call it again within *timeout_ms, which it may make less (-1: no limit). Time without a
 * call does not count. */
linnet_status ln_remote_pulse_look(ln_remote_pulse *pulse, int *timeout_ms, linnet_error *error);
/* Fills the error of a host that has not answered. */
linnet_status ln_remote_pulse_fail(const ln_remote_pulse *pulse, linnet_error *error);

#endif
