/* host.c - a host: accepts connections, gives each a thread, and knows the connections of a client by its token. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host.h"

#include "net/bytes.h"
#include "net/error.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "remote/clock.h"
#include "remote/host_client.h"
#include "remote/host_folder.h"
#include "remote/host_memory.h"
#include "remote/host_recipe.h"
#include "remote/host_wait.h"
#include "remote/host_work.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 1 << 20, MOST_CONNECTIONS = 256, GREETING_S = 10, LARGE = 1 << 16 };

/* ---- a connection ------------------------------------------------------------------------------------------------ */

static void *take(void *context, size_t size) {
    const ln_host *host = context;
    return host->allocator.alloc(host->allocator.context, size, 64);
}

static void give(void *context, void *memory, size_t size) {
    const ln_host *host = context;
    host->allocator.free(host->allocator.context, memory, size);
}

static ln_net_refusal receive(void *context, ln_remote_link *link, uint8_t type, const unsigned char *bytes,
                              size_t size) {
    host_connection *c = context;
    size_t room;
    unsigned char *constant;
    if (c->joined && type != LN_REMOTE_SUBMIT) return LN_NET_UNEXPECTED;
    switch (type) {
    case LN_REMOTE_HELLO:
    case LN_REMOTE_JOIN:
        if (c->client != NULL || (type == LN_REMOTE_JOIN && c->host->config.no_peers)) return LN_NET_UNEXPECTED;
        if (size != LN_REMOTE_HELLO_BYTES) return LN_NET_WRONG_LENGTH;
        if (get32(bytes) != LN_REMOTE_VERSION) return LN_NET_BAD_VERSION;
        c->chunk = get32(bytes + 4) < LN_REMOTE_CHUNK ? get32(bytes + 4) : LN_REMOTE_CHUNK;
        if (type == LN_REMOTE_JOIN) return ln_host_join(c, bytes + 8) ? LN_NET_FINE : LN_NET_NOT_AUTHENTICATED;
        return ln_host_hello(c, bytes + 8) ? LN_NET_FINE : LN_NET_FULL;
    case LN_REMOTE_SUBMIT:
    case LN_REMOTE_RECIPE:
        if (c->work != NULL || c->work_dropped) return LN_NET_UNEXPECTED;
        c->work_type = type;
        c->work_dropped = bytes == NULL;
        c->work = ln_remote_link_take(link, &c->work_room), c->work_size = size;
        return ln_remote_link_pause(link, true, NULL) == LINNET_OK ? LN_NET_FINE : LN_NET_FULL;
    case LN_REMOTE_PIECE:
        give(c->host, c->piece, c->piece_room);
        c->piece_dropped = bytes == NULL;
        c->piece = ln_remote_link_take(link, &c->piece_room), c->piece_size = size;
        if (c->piece != NULL) ln_sha256(c->piece, size, c->piece_digest);
        return LN_NET_FINE;
    case LN_REMOTE_CONSTANT:
        ln_host_recipe_constant(c, bytes, size);
        constant = ln_remote_link_take(link, &room);
        give(c->host, constant, room); /* the next one may be much smaller */
        return LN_NET_FINE;
    default: return LN_NET_UNEXPECTED;
    }
}

/* Lets the value of an UPLOAD that is alone in its message arrive in its buffer, if nothing else of the client runs.
 * From then on nothing else does until the message is executed, so only a client on this machine may do this. */
static unsigned char *direct(void *context, const ln_remote_arriving *message) {
    host_connection *c = context;
    const unsigned char *at = message->bytes;
    linnet_error ignored;
    if (c->placed != NULL) return c->placed + (message->arrived - LN_REMOTE_UPLOAD_BYTES);
    if (!c->local || c->client == NULL || c->joined || message->type != LN_REMOTE_SUBMIT) return NULL;
    if (message->arrived != LN_REMOTE_UPLOAD_BYTES || get32(at) != LN_REMOTE_UPLOAD) return NULL;
    const uint64_t bytes = get64(at + 24);
    if (bytes != message->total - LN_REMOTE_UPLOAD_BYTES || bytes % 8 != 0) return NULL;
    if (pthread_mutex_trylock(&c->client->work) != 0) return NULL;
    c->placed = ln_host_span(c->client, get64(at + 8), get64(at + 16), bytes, &ignored);
    if (c->placed == NULL) pthread_mutex_unlock(&c->client->work);
    return c->placed;
}

static bool is_gone(host_client *client) {
    pthread_mutex_lock(&client->lock);
    const bool gone = client->gone;
    pthread_mutex_unlock(&client->lock);
    return gone;
}

/* Sends the rest of a message. Returns false if the peer is gone, or reads nothing of it for so long that it holds a
 * thread and memory for nothing. Another host reads its answer soon. */
static bool send_rest(host_connection *c, linnet_error *error) {
    const ln_host_config *config = &c->host->config;
    const int64_t end = c->joined && config->timeout > 0 ? ln_host_wait_end(c, 0) + GREETING_S * 1000 : INT64_MAX;
    int64_t moved = ln_remote_now_ms();
    while (ln_remote_link_sends(c->link)) {
        const uint64_t sent = ln_remote_link_sent(c->link);
        if (ln_remote_link_turn(c->link, LN_HOST_TICK_MS, error) != LINNET_OK) return false;
        if (ln_remote_link_sent(c->link) != sent) moved = ln_remote_now_ms();
        if ((double)(ln_remote_now_ms() - moved) >= 1000 * config->send_timeout) return false;
        if (atomic_load(&c->host->stopping) || (c->joined && ln_host_wait_look(c, end, error) != LINNET_OK))
            return false;
    }
    return ln_remote_link_works(c->link);
}

static bool welcome(host_connection *c, linnet_error *error) {
    unsigned char bytes[LN_REMOTE_WELCOME_BYTES] = {0};
    const ln_host_config *config = &c->host->config;
    struct utsname system;
    put32(bytes, LN_REMOTE_VERSION);
    put32(bytes + 4, c->chunk);
    put64(bytes + 8, config->max_bytes);
    put32(bytes + 16, (uint32_t)(config->threads > 0 ? config->threads : linnet_default_threads()));
    put32(bytes + 20, c->number);
    if (uname(&system) == 0) snprintf((char *)bytes + 24, LN_REMOTE_NAME, "%.30s", system.machine);
    put32(bytes + 24 + LN_REMOTE_NAME, config->folder != NULL ? LN_REMOTE_KEEPS : 0);
    ln_remote_link_open(c->link, c->chunk); /* first: the client may answer at once */
    return ln_remote_link_begin(c->link, LN_REMOTE_WELCOME, bytes, sizeof bytes, error) == LINNET_OK &&
           send_rest(c, error);
}

static void *serve(void *context) {
    host_connection *c = context;
    ln_host *host = c->host;
    linnet_error error = {0};
    bool welcomed = false;
    const time_t end = time(NULL) + GREETING_S;
    while (!atomic_load(&host->stopping)) {
        if (c->work == NULL && !c->work_dropped && ln_remote_link_turn(c->link, LN_HOST_TICK_MS, &error) != LINNET_OK)
            break;
        if (c->client != NULL && c->joined && is_gone(c->client)) break;
        if (c->client == NULL && time(NULL) > end) break; /* who says nothing holds no thread */
        if (c->client != NULL && !welcomed) {
            welcomed = true;
            if (!welcome(c, &error)) break;
        }
        if (c->work == NULL && !c->work_dropped) continue;
        const bool alone = !c->joined && !ln_host_is_asked(c); /* another host only takes what was sent */
        if (alone && c->placed == NULL) pthread_mutex_lock(&c->client->work);
        /* As much as can be sent at once is sent before other work of the client may take this processor. */
        const bool answered =
            ln_host_work(c) &&
            ln_remote_link_begin(c->link, LN_REMOTE_ANSWER, c->answer, c->answer_size, &error) == LINNET_OK &&
            ln_remote_link_turn(c->link, 0, &error) == LINNET_OK;
        c->placed = NULL;
        if (alone) pthread_mutex_unlock(&c->client->work);
        give(host, c->work, c->work_room);
        c->work = NULL;
        c->work_dropped = false;
        if (!answered || !send_rest(c, &error)) break;
        if (c->answer_room > LARGE && c->answer_size < c->answer_room / 8) { /* an earlier one was much larger */
            give(host, c->answer, c->answer_room);
            c->answer = NULL, c->answer_room = 0;
        }
        if (ln_remote_link_pause(c->link, false, &error) != LINNET_OK) break;
    }
    if (atomic_load(&host->stopping)) ln_remote_link_refuse(c->link, LN_NET_SHUTTING_DOWN, "the host is stopped");
    ln_remote_link_free(c->link);
    if (c->placed != NULL) pthread_mutex_unlock(&c->client->work);
    ln_host_leave(c);
    ln_host_recipe_free(c);
    give(host, c->work, c->work_room);
    give(host, c->piece, c->piece_room);
    give(host, c->answer, c->answer_room);
    free(c);
    atomic_fetch_sub(&host->connections, 1);
    return NULL;
}

static void begin(ln_host *host, ln_net_transport *transport) {
    pthread_t thread;
    pthread_attr_t attributes;
    host_connection *c = calloc(1, sizeof *c);
    const ln_remote_memory memory = {.context = host, .take = take, .give = give};
    if (c == NULL || atomic_load(&host->connections) >= MOST_CONNECTIONS) {
        ln_net_transport_free(transport);
        free(c);
        return;
    }
    c->host = host;
    c->link = ln_remote_link_new(transport, &memory, receive, c);
    if (c->link == NULL) {
        free(c);
        return;
    }
    c->local = strncmp(host->config.address, "unix:", 5) == 0 || strncmp(host->config.address, "shm:", 4) == 0;
    ln_remote_link_set_direct(c->link, direct);
    atomic_fetch_add(&host->connections, 1);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&thread, &attributes, serve, c) != 0) {
        ln_remote_link_refuse(c->link, LN_NET_FULL, "the host cannot start a thread");
        ln_remote_link_free(c->link);
        free(c);
        atomic_fetch_sub(&host->connections, 1);
    }
    pthread_attr_destroy(&attributes);
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

linnet_status ln_host_create(const ln_host_config *config, ln_host **out, linnet_error *error) {
    ln_host *host = calloc(1, sizeof *host);
    *out = NULL;
    if (host == NULL) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a host");
    host->config = *config;
    host->allocator = ln_host_allocator(host);
    ln_host_folder_clean(config);
    pthread_mutex_init(&host->lock, NULL);
    if (pipe(host->wake) != 0) {
        free(host);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot make a pipe: %s", strerror(errno));
    }
    const linnet_status status = ln_net_listen(config->address, config->security, false, &host->listener, error);
    if (status == LINNET_OK)
        *out = host;
    else
        ln_host_free(host);
    return status;
}

const char *ln_host_address(const ln_host *host) { return ln_net_listener_address(host->listener); }

linnet_status ln_host_run(ln_host *host, linnet_error *error) {
    while (!atomic_load(&host->stopping)) {
        struct pollfd fds[2] = {{.fd = ln_net_listener_fd(host->listener), .events = POLLIN},
                                {.fd = host->wake[0], .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return ln_sync_fail(error, LINNET_UNREACHABLE, "cannot wait for clients: %s", strerror(errno));
        ln_net_transport *transport = NULL;
        linnet_error ignored;
        while (ln_net_accept(host->listener, &transport, &ignored) == LINNET_OK && transport != NULL)
            begin(host, transport);
    }
    ln_net_listener_free(host->listener); /* whoever connects now must not wait for the end of the last run */
    host->listener = NULL;
    const struct timespec moment = {0, 5000000};
    while (atomic_load(&host->connections) > 0) nanosleep(&moment, NULL);
    return LINNET_OK;
}

void ln_host_stop(ln_host *host) {
    const int before = errno;
    atomic_store(&host->stopping, true);
    if (write(host->wake[1], "", 1) < 0) errno = before;
}

void ln_host_free(ln_host *host) {
    if (host == NULL) return;
    ln_net_listener_free(host->listener);
    close(host->wake[0]);
    close(host->wake[1]);
    pthread_mutex_destroy(&host->lock);
    free(host);
}
