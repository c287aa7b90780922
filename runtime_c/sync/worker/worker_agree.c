/* worker_agree.c - a worker's handshake: HELLO, WELCOME, TENSORS, READY, and the meaning of refusals. docs/protocol.md,
 * "States", describes it. */
#include "sync/worker/worker_agree.h"

#include "net/error.h"
#include "net/refusal.h"
#include "net/stream.h"
#include "net/stream_send.h"
#include "sync/codec/digest.h"
#include "sync/codec/manifest.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"
#include "sync/worker/worker_links.h"
#include "sync/worker/worker_model.h"
#include "sync/worker/worker_state.h"

#include <stdio.h>
#include <string.h>

static uint64_t first_word(const unsigned char *bytes) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | bytes[i];
    return word;
}

static uint32_t encodings(const ln_sync_worker *worker) {
    const int values = worker->config.pull_compression;
    return 1u | 1u << worker->config.compression | (values ? 1u << (LN_SYNC_PULL_AS + values) : 0);
}

void ln_worker_greet(worker_link *link) {
    ln_sync_worker *worker = link->worker;
    const linnet_worker_config *config = &worker->config;
    ln_sync_hello hello = {
        .lowest = LN_NET_VERSION,
        .highest = LN_NET_VERSION,
        .role = config->writer      ? LN_SYNC_WRITER
                : config->read_only ? LN_SYNC_READER
                                    : LN_SYNC_WORKER,
        .encodings = encodings(worker),
        .incarnation = worker->incarnation,
        .last_step = link->last_step,
        .epoch = link->epoch,
        .worker = worker->number,
        .group = (uint32_t)config->group,
        .chunk = (uint32_t)worker->link.chunk,
        .heartbeat = (uint32_t)worker->link.heartbeat_ms,
    };
    unsigned char payload[LN_SYNC_HELLO_BYTES];
    worker->host.random(worker->host.context, link->nonce, sizeof link->nonce);
    memcpy(hello.job, worker->job, sizeof hello.job);
    memcpy(hello.nonce, link->nonce, sizeof hello.nonce);
    memcpy(hello.name, worker->name, sizeof worker->name);
    ln_sync_hello_write(&hello, payload);
    const ln_net_header header = {
        .type = LN_SYNC_HELLO,
        .job = first_word(worker->job),
        .worker = worker->number,
        .shard = link->agreed ? link->shard : 0xffff,
    };
    ln_net_stream_expect(link->stream, LN_NET_BIT(LN_SYNC_WELCOME) | LN_NET_BIT(LN_SYNC_REFUSE));
    ln_net_stream_control(link->stream, &header, payload, sizeof payload);
}

/* Rejects this server: sends `why` to it, and keeps `error` for the caller. */
static ln_net_refusal object(worker_link *link, ln_net_refusal why, const linnet_error *error, bool fatal) {
    ln_net_stream_refuse(link->stream, why, 0, error->what);
    ln_worker_end(link, error, fatal);
    return LN_NET_FINE; /* the stream has already refused */
}

/* Checks that this server has one of the shards that we need. */
static ln_net_refusal check_shard(worker_link *link, const ln_sync_welcome *welcome) {
    const ln_sync_worker *worker = link->worker;
    linnet_error error;
    if (welcome->shards != worker->link_count) {
        ln_sync_fail(&error, LINNET_INVALID_ARGUMENT, "the number of servers is wrong");
        ln_sync_expected(&error, "%u shards, according to this server", (unsigned)welcome->shards);
        ln_sync_got(&error, "%d addresses", worker->link_count);
        ln_sync_hint(&error, "name the servers of all shards, each once");
        return object(link, LN_NET_MODEL_DIFFERS, &error, true);
    }
    for (int i = 0; i < worker->link_count; i++) {
        const worker_link *other = &worker->links[i];
        if (other == link || !other->agreed || other->shard != welcome->shard) continue;
        ln_sync_fail(&error, LINNET_INVALID_ARGUMENT, "two addresses lead to servers of the same shard");
        ln_sync_expected(&error, "one address for each of %u shards", (unsigned)welcome->shards);
        ln_sync_got(&error, "shard %u also at %.60s", (unsigned)welcome->shard, other->address);
        ln_sync_hint(&error, "name the servers of all shards, each once");
        return object(link, LN_NET_MODEL_DIFFERS, &error, true);
    }
    if (link->agreed && link->shard != welcome->shard) {
        ln_sync_fail(&error, LINNET_OTHER_MODEL, "this address now serves another shard than before");
        ln_sync_expected(&error, "shard %u", (unsigned)link->shard);
        ln_sync_got(&error, "shard %u", (unsigned)welcome->shard);
        ln_sync_hint(&error,
                     "start that shard's server at this address again, or start the workers with new addresses");
        return object(link, LN_NET_MODEL_DIFFERS, &error, false);
    }
    if (welcome->epoch < link->epoch) {
        ln_sync_fail(&error, LINNET_SUPERSEDED, "a server was restarted from an older state, or beside a newer server");
        ln_sync_expected(&error, "epoch %llu or later", (unsigned long long)link->epoch);
        ln_sync_got(&error, "epoch %llu", (unsigned long long)welcome->epoch);
        ln_sync_hint(&error, "start it with its own snapshot folder, and only one server per shard");
        return object(link, LN_NET_SUPERSEDED, &error, false);
    }
    return LN_NET_FINE;
}

/* Checks our worker number, which the server of shard 0 assigns. */
static bool number_known(worker_link *link, const ln_sync_welcome *welcome) {
    ln_sync_worker *worker = link->worker;
    linnet_error error;
    if (worker->config.read_only || worker->number == welcome->worker) return true;
    if (worker->number == LN_NET_NO_WORKER && welcome->shard == 0) {
        worker->number = welcome->worker;
        return true;
    }
    if (worker->number == LN_NET_NO_WORKER) {
        worker->lead = (link->index + 1) % worker->link_count;
        ln_sync_fail(&error, LINNET_UNREACHABLE, "waiting for the server of shard 0, which assigns worker numbers");
    } else {
        ln_sync_fail(&error, LINNET_PROTOCOL_ERROR, "the server assigned a different worker number");
    }
    ln_worker_end(link, &error, false);
    return false;
}

static ln_net_refusal welcomed(worker_link *link, const ln_sync_welcome *welcome) {
    ln_sync_worker *worker = link->worker;
    linnet_error error;
    if (memcmp(welcome->nonce, link->nonce, sizeof link->nonce)) return LN_NET_REPLAY;
    if (welcome->version != LN_NET_VERSION) return LN_NET_BAD_VERSION;
    /* Refuses values that were not offered. */
    if (welcome->chunk > (uint32_t)worker->link.chunk || welcome->encodings & ~encodings(worker))
        return LN_NET_MALFORMED;
    const ln_net_refusal why = check_shard(link, welcome);
    if (why || link->ending || !number_known(link, welcome)) return why;
    if (!link->parts) { /* the first handshake of this link */
        const uint32_t most = worker->config.read_only ? 65535 : (uint32_t)worker->tensor_count;
        if (welcome->tensors > most) {
            ln_sync_fail(&error, LINNET_OTHER_MODEL, "the server has more variables than this model trains");
            ln_sync_expected(&error, "at most %u", (unsigned)most);
            ln_sync_got(&error, "%u", (unsigned)welcome->tensors);
            ln_sync_hint(&error, "start servers and workers with files that one call of linnet.sync.signatures or "
                                 "linnet.sync.shard wrote");
            return object(link, LN_NET_MODEL_DIFFERS, &error, true);
        }
        ln_sync_manifest_free(link->manifest);
        if (ln_sync_manifest_create(welcome->tensors, &link->manifest, &error))
            return object(link, LN_NET_OVER_LIMIT, &error, true);
    }
    if (welcome->epoch != link->epoch)
        for (uint32_t i = 0; link->parts && i < link->manifest->count; i++) link->parts[i].version = LN_SYNC_NONE;
    memcpy(link->server_nonce, welcome->server_nonce, sizeof link->server_nonce);
    link->shard = welcome->shard;
    link->epoch = welcome->epoch;
    link->version = welcome->parameters;
    link->next = welcome->step;
    link->encodings = welcome->encodings;
    link->chunk = welcome->chunk;
    link->number = welcome->worker;
    link->heartbeat = welcome->heartbeat * LN_SYNC_MS;
    link->lease = welcome->lease * LN_SYNC_MS;
    link->announced = welcome->tensors;
    link->digest[0] = link->digest[1] = 0;
    ln_net_stream_expect(link->stream, LN_NET_BIT(LN_SYNC_TENSORS) | LN_NET_BIT(LN_SYNC_REFUSE));
    return LN_NET_FINE;
}

ln_net_refusal ln_worker_take_welcome(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_sync_welcome welcome;
    return ln_sync_welcome_read(&welcome, payload, header->length) ? welcomed(link, &welcome) : LN_NET_MALFORMED;
}

static void write_word(unsigned char *bytes, uint64_t word) {
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(word >> 8 * i);
}

/* Called when all tensors have been announced. */
static ln_net_refusal agree(worker_link *link) {
    ln_sync_worker *worker = link->worker;
    linnet_error error;
    ln_sync_ready ready;
    unsigned char payload[LN_SYNC_READY_BYTES];
    if (memcmp(link->digest, link->manifest->digest, sizeof link->digest)) {
        ln_sync_fail(&error, LINNET_OTHER_MODEL,
                     "the server has different variables than before the connection was lost");
        ln_sync_hint(&error, "restart the server with the same file, or restart the workers");
        return object(link, LN_NET_MODEL_DIFFERS, &error, true);
    }
    if (!link->parts && ln_worker_match(link, &error)) return object(link, LN_NET_MODEL_DIFFERS, &error, true);
    memcpy(ready.server_nonce, link->server_nonce, sizeof ready.server_nonce);
    write_word(ready.manifest, link->digest[0]);
    write_word(ready.manifest + 8, link->digest[1]);
    ln_sync_ready_write(&ready, payload);
    ln_net_stream_open(link->stream, first_word(worker->job), link->number, link->shard, link->chunk);
    ln_net_stream_expect(link->stream, ln_sync_sent_by(LN_SYNC_SERVER));
    link->agreed = true;
    ln_worker_opened(link);
    return ln_worker_send(link, LN_SYNC_READY, 0, payload, sizeof payload) ? LN_NET_FINE : LN_NET_OVER_LIMIT;
}

ln_net_refusal ln_worker_take_tensors(worker_link *link, const ln_net_header *header, const void *payload) {
    const unsigned char *bytes = payload;
    const size_t length = header->length;
    ln_sync_tensor entry;
    ln_sync_digest(payload, length, link->digest);
    if (link->parts) { /* the tensors are known from an earlier handshake; the digest shows whether they are the same */
        for (size_t at = 0, n; at < length; at += n) {
            n = ln_sync_tensor_read(&entry, bytes + at, length - at);
            if (n == 0 || link->announced == 0) return LN_NET_MALFORMED;
            link->announced--;
        }
    } else {
        const uint32_t before = link->manifest->count;
        const ln_net_refusal why = ln_sync_manifest_take(link->manifest, payload, length);
        if (why) return why;
        link->announced -= link->manifest->count - before;
    }
    return link->announced == 0 ? agree(link) : LN_NET_FINE;
}

/* Tells the log that the worker waits, because it is refused for now. */
static void tell(worker_link *link, const ln_net_refuse *refuse, const linnet_error *error) {
    const linnet_worker_config *config = &link->worker->config;
    char text[512];
    if (!config->log || link->told == (int)refuse->why) return;
    link->told = (int)refuse->why;
    snprintf(text, sizeof text, "the worker waits for the server %.80s, for at most %g s: %s; %s", link->address,
             1e-3 * config->lost_ms, error->what, error->hint);
    config->log(config->log_context, LINNET_LOG_WARNING, text);
}

static void refused(worker_link *link, const ln_net_refuse *refuse) {
    linnet_error error;
    linnet_status status = LINNET_REFUSED;
    bool fatal = false;
    const char *hint = "the server's own error message says more";
    switch (refuse->why) {
    case LN_NET_BAD_VERSION: hint = "install the same version of linnet on both sides", fatal = true; break;
    case LN_NET_UNKNOWN_JOB:
    case LN_NET_MODEL_DIFFERS:
        hint =
            "start servers and workers with files that one call of linnet.sync.signatures or linnet.sync.shard wrote";
        status = LINNET_OTHER_MODEL, fatal = true;
        break;
    case LN_NET_IN_USE:
        hint = "end the other process, or give each worker its own number, or let the server choose (-1)";
        break;
    case LN_NET_FULL: hint = "raise max_workers of the server"; break;
    case LN_NET_NOT_AUTHENTICATED:
        hint = "give both sides the same key file", status = LINNET_NOT_AUTHENTICATED, fatal = true;
        break;
    case LN_NET_SUPERSEDED:
        hint = "another server was started for this shard: use its address", status = LINNET_SUPERSEDED;
        break;
    case LN_NET_SHUTTING_DOWN:
        hint = "start the server again; the workers then continue", status = LINNET_CONNECTION_LOST;
        break;
    case LN_NET_OVER:
        hint = "to continue, start the server and the workers again", status = LINNET_JOB_OVER, fatal = true;
        break;
    case LN_NET_BEHIND:
        hint = "restore or repair (--repair) the folder of that server, then restart the workers", fatal = true;
        break;
    case LN_NET_FORGOTTEN:
        hint = "restart this worker: the outcome of its last push is no longer known", fatal = true;
        break;
    case LN_NET_OVER_LIMIT: hint = "raise max_bytes of the server", status = LINNET_PROTOCOL_ERROR, fatal = true; break;
    case LN_NET_UNEXPECTED:
    case LN_NET_UNKNOWN_TENSOR:
    case LN_NET_WRONG_LENGTH:
    case LN_NET_WRONG_ENCODING: status = LINNET_PROTOCOL_ERROR, fatal = true; break; /* it would be refused again */
    default: status = LINNET_PROTOCOL_ERROR;
    }
    ln_sync_fail(&error, status, "the server refuses: %s%s%.100s", ln_net_refusal_name(refuse->why),
                 refuse->text[0] ? ": " : "", refuse->text);
    ln_sync_hint(&error, "%s", hint);
    if (!fatal) tell(link, refuse, &error);
    ln_worker_end(link, &error, fatal);
}

ln_net_refusal ln_worker_take_refuse(worker_link *link, const ln_net_header *header, const void *payload) {
    ln_net_refuse refuse;
    if (!ln_net_refuse_read(&refuse, payload, header->length)) return LN_NET_MALFORMED;
    refused(link, &refuse);
    return LN_NET_FINE;
}
