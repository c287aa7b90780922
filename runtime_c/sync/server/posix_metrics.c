/* posix_metrics.c - the part of HTTP/1.1 (RFC 9112) that Prometheus needs. A connection serves one request of at most 4
 * KB, and is dropped if this takes more than 5 s. At most 16 connections are open at a time. */
#define _DEFAULT_SOURCE
#include "sync/server/posix_metrics.h"

#include "net/error.h"
#include "net/posix_poller.h"
#include "net/transport_listen.h"
#include "sync/server/server_status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 16, REQUEST = 4096 };
static const uint64_t SECOND = UINT64_C(1000000000), PATIENCE = UINT64_C(5000000000);

typedef struct client {
    int fd; /* -1: free */
    size_t got;
    char request[REQUEST];
    char *answer;
    size_t size, sent;
    uint64_t began;
} client;

struct ln_sync_metrics {
    ln_net_listener *listener;
    ln_net_poller *poller;
    uint64_t closed_until; /* 0: the poller watches the listener */
    client clients[CLIENTS];
};

linnet_status ln_sync_metrics_create(const char *address, bool insecure, ln_net_poller *poller, ln_sync_metrics **out,
                                     linnet_error *error) {
    ln_sync_metrics *m = calloc(1, sizeof *m);
    linnet_status status;
    *out = NULL;
    if (!m) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for metrics");
    for (int i = 0; i < CLIENTS; i++) m->clients[i].fd = -1;
    m->poller = poller;
    status = ln_net_listen(address, NULL, insecure, &m->listener, error);
    if (!status && !ln_net_poller_add(poller, ln_net_listener_fd(m->listener), LN_NET_READ, m))
        status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot watch the metrics socket");
    if (status) {
        ln_sync_metrics_free(m);
        return status;
    }
    *out = m;
    return LINNET_OK;
}

static void end(ln_sync_metrics *m, client *c) {
    if (c->fd < 0) return;
    ln_net_poller_remove(m->poller, c->fd);
    close(c->fd);
    free(c->answer);
    c->answer = NULL;
    c->fd = -1;
}

void ln_sync_metrics_free(ln_sync_metrics *m) {
    if (!m) return;
    for (int i = 0; i < CLIENTS; i++) end(m, &m->clients[i]);
    ln_net_listener_free(m->listener);
    free(m);
}

const char *ln_sync_metrics_address(const ln_sync_metrics *m) { return ln_net_listener_address(m->listener); }

static void accept_one(ln_sync_metrics *m, uint64_t now) {
    client *c = m->clients;
    const int fd = accept(ln_net_listener_fd(m->listener), NULL, NULL);
    if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        /* There are no descriptors, so the client keeps waiting. The poller stops watching the listener for a moment,
         * because poll would report it again and again. */
        ln_net_poller_change(m->poller, ln_net_listener_fd(m->listener), 0, m);
        m->closed_until = now + SECOND / 10;
        return;
    }
    while (c < m->clients + CLIENTS && c->fd >= 0) c++;
    if (c == m->clients + CLIENTS || fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC) ||
        !ln_net_poller_add(m->poller, fd, LN_NET_READ, c)) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->got = c->sent = c->size = 0;
    c->began = now;
}

static void answer(client *c, ln_sync_server *server) {
    const bool get = !strncmp(c->request, "GET ", 4),
               ours = get && (!strncmp(c->request + 4, "/metrics ", 9) || !strncmp(c->request + 4, "/metrics?", 9));
    const char *line = ours ? "200 OK" : get ? "404 Not Found" : "405 Method Not Allowed\r\nAllow: GET";
    const char *text = ours ? "" : get ? "This is a linnet server: GET /metrics\n" : "only GET is supported\n";
    const size_t body = ours ? ln_sync_server_metrics(server, NULL, 0) : strlen(text);
    c->answer = malloc(body + 256);
    if (!c->answer) return;
    c->size = (size_t)snprintf(c->answer, 255,
                               "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                               "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                               line, body);
    if (ours)
        ln_sync_server_metrics(server, c->answer + c->size, body + 1);
    else
        memcpy(c->answer + c->size, text, body);
    c->size += body;
}

/* Returns false if the client is finished. */
static bool serve(ln_sync_metrics *m, client *c, ln_sync_server *server) {
    if (!c->answer) {
        const ssize_t n = recv(c->fd, c->request + c->got, REQUEST - 1 - c->got, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (n <= 0) return false;
        c->got += (size_t)n;
        c->request[c->got] = 0;
        if (!strstr(c->request, "\r\n\r\n")) return c->got < REQUEST - 1;
        answer(c, server);
        if (!c->answer) return false;
    }
    while (c->sent < c->size) {
        const ssize_t n = send(c->fd, c->answer + c->sent, c->size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return ln_net_poller_change(m->poller, c->fd, LN_NET_WRITE, c);
        if (n <= 0) return false;
        c->sent += (size_t)n;
    }
    return false;
}

bool ln_sync_metrics_ready(ln_sync_metrics *m, void *user, ln_sync_server *server, uint64_t now) {
    if (!m) return false;
    if (user == m) {
        accept_one(m, now);
        return true;
    }
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &m->clients[i];
        if (user != c) continue;
        if (c->fd >= 0 && !serve(m, c, server)) end(m, c);
        return true;
    }
    return false;
}

void ln_sync_metrics_tick(ln_sync_metrics *m, uint64_t now) {
    if (m && m->closed_until && now >= m->closed_until) {
        m->closed_until = 0;
        ln_net_poller_change(m->poller, ln_net_listener_fd(m->listener), LN_NET_READ, m);
    }
    for (int i = 0; m && i < CLIENTS; i++)
        if (m->clients[i].fd >= 0 && now - m->clients[i].began > PATIENCE) end(m, &m->clients[i]);
}
