/* refusal.c - the names of refusals, and the payload of REFUSE. */
#include "net/refusal.h"

#include "net/bytes.h"

static const char *const refusals[] = {
    "fine",
    "version",
    "unknown job",
    "model differs",
    "worker number in use",
    "full",
    "not authenticated",
    "superseded",
    "limit",
    "malformed",
    "checksum",
    "unexpected frame",
    "unknown tensor",
    "wrong length",
    "encoding not agreed",
    "too slow",
    "shutting down",
    "replay",
    "the job is over",
    "server is behind",
    "worker is forgotten",
};

const char *ln_net_refusal_name(ln_net_refusal why) {
    return (size_t)why < sizeof refusals / sizeof *refusals ? refusals[why] : "unknown";
}

size_t ln_net_refuse_write(const ln_net_refuse *refuse, unsigned char *bytes) {
    const size_t size = text_length(refuse->text, LN_NET_REFUSE_TEXT);
    put16(bytes, (uint16_t)refuse->why);
    put16(bytes + 2, (uint16_t)size);
    put32(bytes + 4, refuse->detail);
    memcpy(bytes + LN_NET_REFUSE_BYTES, refuse->text, size);
    return LN_NET_REFUSE_BYTES + size;
}

bool ln_net_refuse_read(ln_net_refuse *refuse, const unsigned char *bytes, size_t length) {
    if (length < LN_NET_REFUSE_BYTES) return false;
    refuse->why = (ln_net_refusal)get16(bytes);
    refuse->detail = get32(bytes + 4);
    return refuse->why != LN_NET_FINE &&
           get_text(refuse->text, LN_NET_REFUSE_TEXT, bytes, length, LN_NET_REFUSE_BYTES, get16(bytes + 2));
}
