/* pulse.c - asks a host with SUBMIT of NOTHING, by a connection that is made when a wait has taken a quarter of the
 * lease. The host answers this also while it works for the same client. */
#define _POSIX_C_SOURCE 200809L
#include "remote/pulse.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/clock.h"
#include "net/transport_connect.h"

#include <string.h>

enum { UNDER_WAY_MS = 20 }; /* between two looks while a question is under way */

void ln_remote_pulse_init(ln_remote_pulse *pulse, const ln_remote_pulse_place *place) {
    *pulse = (ln_remote_pulse){.place = *place};
}

static void hang_up(ln_remote_pulse *pulse) {
    ln_remote_link_free(pulse->link);
    pulse->link = NULL;
    pulse->welcomed = pulse->asked = false;
}

void ln_remote_pulse_free(ln_remote_pulse *pulse) { hang_up(pulse); }

void ln_remote_pulse_hear(ln_remote_pulse *pulse) { pulse->heard = pulse->looked = ln_remote_now_ms(); }

static ln_net_refusal receive(void *context, ln_remote_link *link, uint8_t type, const unsigned char *bytes,
                              size_t size) {
    ln_remote_pulse *pulse = context;
    if (bytes == NULL) return LN_NET_FULL;
    pulse->heard = ln_remote_now_ms();
    if (type == LN_REMOTE_ANSWER && pulse->asked) {
        pulse->asked = false;
        return LN_NET_FINE;
    }
    if (type != LN_REMOTE_WELCOME || pulse->welcomed) return LN_NET_UNEXPECTED;
    if (size != LN_REMOTE_WELCOME_BYTES) return LN_NET_WRONG_LENGTH;
    if (get32(bytes) != LN_REMOTE_VERSION) return LN_NET_BAD_VERSION;
    pulse->welcomed = true;
    ln_remote_link_open(link, get32(bytes + 4));
    return LN_NET_FINE;
}

static linnet_status greet(ln_remote_pulse *pulse, linnet_error *error) {
    unsigned char hello[LN_REMOTE_HELLO_BYTES];
    ln_net_transport *transport = NULL;
    const linnet_status status = ln_net_connect(pulse->place.address, pulse->place.security, false, &transport, error);
    if (status != LINNET_OK) return status;
    pulse->link = ln_remote_link_new(transport, NULL, receive, pulse);
    if (pulse->link == NULL) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
    put32(hello, LN_REMOTE_VERSION);
    put32(hello + 4, LN_REMOTE_CHUNK);
    memcpy(hello + 8, pulse->place.token, LN_REMOTE_TOKEN);
    return ln_remote_link_begin(pulse->link, (uint8_t)pulse->place.greeting, hello, sizeof hello, error);
}

/* Sends the next message of a question. */
static linnet_status ask(ln_remote_pulse *pulse, int64_t now, linnet_error *error) {
    static const unsigned char nothing[8] = {LN_REMOTE_NOTHING};
    if (pulse->link == NULL) {
        if (now - pulse->tried < pulse->place.lease_ms / 4) return LINNET_OK;
        pulse->tried = now;
        return greet(pulse, error);
    }
    if (!pulse->welcomed || pulse->asked) return LINNET_OK;
    pulse->asked = true;
    return ln_remote_link_begin(pulse->link, LN_REMOTE_SUBMIT, nothing, sizeof nothing, error);
}

linnet_status ln_remote_pulse_fail(const ln_remote_pulse *pulse, linnet_error *error) {
    ln_sync_fail(error, LINNET_TIMED_OUT, "the host at %.200s did not answer for %g s", pulse->place.address,
                 pulse->place.lease_ms / 1000.0);
    return ln_sync_hint(error, "see whether the machine, linnet-host and the network work, and make a new session; if "
                               "the host was only slow, raise the option lease=SECONDS of the device");
}

linnet_status ln_remote_pulse_look(ln_remote_pulse *pulse, int *timeout_ms, linnet_error *error) {
    const int64_t now = ln_remote_now_ms();
    const int lease = pulse->place.lease_ms, step = lease / 4;
    linnet_status status = LINNET_OK;
    int limit = step;
    if (now - pulse->looked > lease / 2) pulse->heard = now; /* nobody has looked meanwhile */
    pulse->looked = now;
    if (pulse->link != NULL) status = ln_remote_link_turn(pulse->link, 0, error);
    if (status == LINNET_OK && now - pulse->heard >= step) status = ask(pulse, now, error);
    if (status == LINNET_CONNECTION_LOST || status == LINNET_REFUSED) pulse->heard = now; /* somebody has closed it */
    if (status != LINNET_OK) hang_up(pulse);
    if (now - pulse->heard >= lease) return ln_remote_pulse_fail(pulse, error);
    if (pulse->link != NULL && (!pulse->welcomed || pulse->asked || now - pulse->heard >= step)) limit = UNDER_WAY_MS;
    if (limit > step) limit = step;
    if (*timeout_ms < 0 || *timeout_ms > limit) *timeout_ms = limit;
    return LINNET_OK;
}
