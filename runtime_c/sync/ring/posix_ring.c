/* posix_ring.c - the public ring: waits for neighbours, notices a lost rank, and tells the others.
 * A waiting rank sends heartbeats to its right neighbour, so only the right neighbour of a silent rank reports it as
 * lost. */
#include "sync/ring/posix_ring_state.h"

#include "net/error.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "net/transport_flow.h"
#include "net/transport_security.h"
#include "sync/common/config.h"
#include "sync/ring/posix_ring_link.h"
#include "sync/ring/posix_ring_meet.h"
#include "sync/ring/ring_core.h"

#include <stdio.h>
#include <stdlib.h>

enum { GRACE_MS = 2000, FLUSH_MS = 1000, BEAT_MS = 500 };

/* ---- broken rings --------------------------------------------------------------------------------------------- */

/* Sends the queued frames, for at most FLUSH_MS. */
static void flush(linnet_ring *ring) {
    ring_link *const links[2] = {ring->left, ring->right};
    const uint64_t until = ln_sync_ring_clock() + FLUSH_MS;
    for (;;) {
        bool idle = true;
        for (int i = 0; i < 2; i++)
            idle = idle && (ln_sync_ring_over(links[i]->flow) || ln_net_stream_idle(links[i]->stream));
        const uint64_t now = ln_sync_ring_clock();
        if (idle || now >= until) return;
        ln_sync_ring_turn(links, 2, NULL, 0, (int)(until - now));
    }
}

/* Makes the ring unusable because rank `lost` is lost: tells all ranks to the right and closes the connections. */
static linnet_status broken(linnet_ring *ring, int lost, ln_net_refusal why, const char *text, linnet_error *error) {
    linnet_error *record = &ring->broken;
    char name[32];
    const linnet_status status = why == LN_NET_TOO_SLOW        ? LINNET_TIMED_OUT
                                 : why == LN_NET_SHUTTING_DOWN ? LINNET_CONNECTION_LOST
                                                               : LINNET_PROTOCOL_ERROR;
    ln_sync_fail(record, status, "rank %d of %d %s: %s", lost, ring->core.size,
                 status == LINNET_PROTOCOL_ERROR ? "does not fit into the ring" : "was lost", text);
    snprintf(name, sizeof name, "rank %d", lost);
    ln_sync_at(record, name);
    ln_sync_hint(record, status == LINNET_PROTOCOL_ERROR ? "all ranks must reduce arrays of the same size and dtype"
                                                         : "create a new ring of the remaining ranks");
    record->op_index = lost;
    ln_sync_ring_tell(&ring->core, lost, why, text);
    flush(ring);
    ring->core.active = false;
    ln_sync_ring_link_free(ring->left);
    ln_sync_ring_link_free(ring->right);
    ring->left = ring->right = NULL;
    if (error) *error = *record;
    return status;
}

/* Reports that the peer's rank is lost because its connection ended or failed. */
static linnet_status link_lost(linnet_ring *ring, const ring_link *link, linnet_error *error) {
    char text[LN_NET_REFUSE_TEXT];
    const ln_net_refusal failure = ln_net_stream_failure(link->stream);
    const int rank = link == ring->left ? ln_sync_ring_left(&ring->core) : ln_sync_ring_right(&ring->core);
    if (failure) {
        snprintf(text, sizeof text, "it sends what rank %d does not expect (%s)", ring->core.rank,
                 ln_net_refusal_name(failure));
        return broken(ring, rank, failure, text, error);
    }
    if (link == ring->left && ring->core.left_said_bye)
        return broken(ring, rank, LN_NET_SHUTTING_DOWN, "it left the ring", error);
    if (link->flow == LN_NET_ENDED || !link->error.what[0])
        return broken(ring, rank, LN_NET_SHUTTING_DOWN, "it closed the connection", error);
    snprintf(text, sizeof text, "%s", link->error.what);
    return broken(ring, rank, LN_NET_SHUTTING_DOWN, text, error);
}

/* ---- public functions ------------------------------------------------------------------------------------------- */

static linnet_status take_config(const linnet_ring_config *given, linnet_ring_config *config, linnet_error *error) {
    if (LN_SYNC_TAKE(linnet_ring_config, timeout_ms, config, given, error)) return LINNET_INVALID_ARGUMENT;
    if (config->size == 0) config->size = 1;
    if (config->size < 1 || config->rank < 0 || config->rank >= config->size) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "rank or size of the ring is out of range");
        ln_sync_expected(error, "size >= 1 and a rank from 0 to size - 1");
        return ln_sync_got(error, "rank %d, size %d", (int)config->rank, (int)config->size);
    }
    if (config->size > 1 && !config->address)
        return ln_sync_fail(error, LINNET_INVALID_ARGUMENT,
                            "a ring of several ranks needs config.address, where they meet");
    return LINNET_OK;
}

linnet_status linnet_ring_create(const linnet_ring_config *given, linnet_ring **out, linnet_error *error) {
    LN_SYNC_WANT_ERROR(error);
    linnet_status status;
    if (!out) return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_ring_create: `out` is NULL");
    *out = NULL;
    if (!given) return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_ring_create: `config` is NULL");
    linnet_ring_config config;
    linnet_link_config link;
    if ((status = take_config(given, &config, error)) || (status = ln_sync_take_link(config.link, &link, error)))
        return status;
    linnet_ring *ring = calloc(1, sizeof *ring);
    if (!ring) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a ring");
    ring->chunk = (uint32_t)link.chunk;
    ring->core = (ln_sync_ring){.rank = config.rank, .size = config.size, .lost = -1};
    ring->core.piece = ring->chunk / 8 * 8;
    ring->core.scratch = malloc(ring->core.piece);
    ring->handler = ln_sync_ring_handler(&ring->core);
    ring->insecure = link.insecure != 0;
    ring->timeout_ms = config.timeout_ms > 0 ? config.timeout_ms : 60000;
    status = ring->core.scratch ? LINNET_OK : ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a ring");
    if (!status) status = ln_sync_secure(&link, &ring->security, error);
    if (!status && config.size > 1) status = ln_sync_ring_meet(ring, &config, error);
    if (status) {
        linnet_ring_free(ring);
        return status;
    }
    *out = ring;
    return LINNET_OK;
}

/* Called when the neighbour on one side has sent (or received) nothing for too long. */
static linnet_status silent(linnet_ring *ring, bool left, uint64_t since, linnet_error *error) {
    char text[96];
    snprintf(text, sizeof text, "it has %s rank %d for %.1f s", left ? "sent nothing to" : "received nothing from",
             ring->core.rank, (double)(ln_sync_ring_clock() - since) / 1000);
    const int rank = left ? ln_sync_ring_left(&ring->core) : ln_sync_ring_right(&ring->core);
    return broken(ring, rank, LN_NET_TOO_SLOW, text, error);
}

/* Counts the bytes of one connection in one direction. */
typedef struct watch {
    uint64_t bytes, since;
} watch;

static void look(watch *w, uint64_t bytes, uint64_t now) {
    if (w->bytes == bytes) return;
    w->bytes = bytes;
    w->since = now;
}

/* Checks after a turn whether the ring is broken. If so, sets *status. */
static bool is_broken(linnet_ring *ring, watch *heard, watch *taken, uint64_t *right_gone, linnet_status *status,
                      linnet_error *error) {
    const ln_sync_ring *core = &ring->core;
    const uint64_t now = ln_sync_ring_clock(), most = (uint64_t)ring->timeout_ms;
    const bool awaits = core->received < core->all; /* a left neighbour that has sent everything may leave */
    uint64_t received, sent, other;
    ln_net_transport_counts(ring->left->transport, &received, &other);
    ln_net_transport_counts(ring->right->transport, &other, &sent);
    look(heard, received, now);
    look(taken, sent, now);
    if (ln_sync_ring_over(ring->right->flow) && !*right_gone) *right_gone = now;
    if (core->lost >= 0)
        *status = broken(ring, core->lost, core->why, core->text, error);
    else if (awaits && ln_sync_ring_over(ring->left->flow))
        *status = link_lost(ring, ring->left, error);
    else if (awaits && now - heard->since >= most)
        *status = silent(ring, true, heard->since, error);
    else if (!awaits && now - taken->since >= most)
        *status = silent(ring, false, taken->since, error);
    else if (*right_gone && now - *right_gone >= GRACE_MS)
        /* The right neighbour may have closed because another rank is lost. In this case a message about that rank
         * arrives from the left within GRACE_MS. */
        *status = link_lost(ring, ring->right, error);
    else
        return false;
    return true;
}

static linnet_status reduce(linnet_ring *ring, linnet_error *error) {
    ring_link *const links[2] = {ring->left, ring->right};
    const uint64_t begin = ln_sync_ring_clock();
    watch heard = {UINT64_MAX, begin}, taken = heard;
    uint64_t beaten = begin, right_gone = 0;
    const int beat_ms = ring->timeout_ms / 4 < BEAT_MS ? ring->timeout_ms / 4 : BEAT_MS;
    while (!ln_sync_ring_done(&ring->core)) {
        linnet_status status;
        ln_sync_ring_turn(links, 2, NULL, 0, beat_ms);
        if (ln_sync_ring_done(&ring->core)) break;
        if (is_broken(ring, &heard, &taken, &right_gone, &status, error)) return status;
        const uint64_t now = ln_sync_ring_clock();
        if (now - beaten >= (uint64_t)beat_ms) {
            unsigned char beat[LN_SYNC_HEARTBEAT_BYTES];
            ln_sync_heartbeat_write(&(ln_sync_heartbeat){.clock = now * 1000000}, beat);
            ln_net_stream_control(ring->core.right, &(ln_net_header){.type = LN_SYNC_HEARTBEAT}, beat, sizeof beat);
            beaten = now;
        }
    }
    return LINNET_OK;
}

linnet_status linnet_ring_all_reduce(linnet_ring *ring, void *data, uint64_t count, int32_t dtype,
                                     linnet_ring_operation operation, linnet_error *error) {
    LN_SYNC_WANT_ERROR(error);
    if (!ring || (!data && count > 0))
        return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "linnet_ring_all_reduce: `ring` or `data` is NULL");
    const bool whole = dtype == LINNET_I32 || dtype == LINNET_I64;
    if (!ln_sync_ring_width(dtype) || (whole && operation != LINNET_RING_SUM) || count > SIZE_MAX / 16 ||
        (operation != LINNET_RING_SUM && operation != LINNET_RING_MEAN)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a ring cannot reduce this dtype with this operation");
        ln_sync_expected(error, "f32 or f64 with sum or mean, i32 or i64 with sum");
        return ln_sync_got(error, "dtype %d, operation %d", (int)dtype, (int)operation);
    }
    if (ring->broken.code) {
        if (error) *error = ring->broken;
        return (linnet_status)ring->broken.code;
    }
    if (ring->core.size == 1) return LINNET_OK;
    ln_sync_ring_begin(&ring->core, data, count, dtype, (int)operation);
    return reduce(ring, error);
}

void linnet_ring_free(linnet_ring *ring) {
    if (!ring) return;
    if (ring->left && ring->right && ring->right->open) {
        ln_net_stream_control(ring->right->stream, &(ln_net_header){.type = LN_SYNC_BYE}, NULL, 0);
        flush(ring);
    }
    ln_sync_ring_link_free(ring->left);
    ln_sync_ring_link_free(ring->right);
    ln_net_security_free(ring->security);
    free(ring->core.scratch);
    free(ring);
}
