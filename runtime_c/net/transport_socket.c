/* transport_socket.c - TCP and Unix stream sockets as a medium: reads into the stream's space, writes. Never blocks.
 * A broken pipe is an error value, never a signal. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_socket.h"

#include "net/error.h"
#include "net/transport_address.h"
#include "net/transport_medium.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0 /* macOS uses SO_NOSIGPIPE instead */
#endif
#if !defined(MSG_MORE)
#define MSG_MORE 0
#endif

enum { LOW_WATER = 128 << 10 };

bool ln_net_unblock(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

/* ---- the medium ------------------------------------------------------------------------------------------------ */

static long broken(ln_net_transport *transport, const char *what, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, LINNET_CONNECTION_LOST, "%s: %s", what, ln_net_errno(errno, text, sizeof text));
    ln_sync_at(error, transport->peer);
    return LN_NET_FAILED;
}

static long socket_read(ln_net_transport *transport, void *data, size_t size, linnet_error *error) {
    for (;;) {
        ssize_t got = recv(transport->fd, data, size, 0);
        if (got > 0) return (long)got;
        if (got == 0) return LN_NET_END_OF_FILE;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return LN_NET_WOULD_BLOCK;
        if (errno != EINTR) return broken(transport, "the connection failed while receiving", error);
    }
}

static long socket_write(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error) {
    struct iovec parts[LN_NET_SLICES];
    struct msghdr message;
    memset(&message, 0, sizeof message);
    for (int i = 0; i < count; i++) {
        parts[i].iov_base = (void *)(uintptr_t)slices[i].data;
        parts[i].iov_len = slices[i].size;
    }
    message.msg_iov = parts;
    message.msg_iovlen = count;
    for (;;) {
        ssize_t put = sendmsg(transport->fd, &message, MSG_NOSIGNAL | (transport->more ? MSG_MORE : 0));
        if (put > 0) return (long)put;
        if (put == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return LN_NET_WOULD_BLOCK;
        if (errno != EINTR) return broken(transport, "the connection failed while sending", error);
    }
}

void ln_net_forget_addresses(ln_net_transport *transport) {
    if (transport->addresses) freeaddrinfo(transport->addresses);
    transport->addresses = transport->next = NULL;
}

/* A large payload wakes its reader every 128 KB instead of for every segment, because each wake-up costs both sides
 * more than the copying. */
static void socket_expect(ln_net_transport *transport, size_t size) {
    const int mark = size < LOW_WATER / 4 ? 1 : size < LOW_WATER ? (int)size : LOW_WATER;
    if (!transport->low_water || mark == transport->low_water) return;
    if (setsockopt(transport->fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0) transport->low_water = mark;
}

static void socket_close(ln_net_transport *transport) {
    char rest[4096];
    ln_net_forget_addresses(transport);
    if (transport->fd < 0) return;
    /* If a TCP socket is closed with unread bytes, TCP may discard the bytes that were sent last, for example REFUSE.
     * This function therefore reads the bytes that have arrived. */
    if (shutdown(transport->fd, SHUT_WR) == 0)
        for (int i = 0; i < 256 && recv(transport->fd, rest, sizeof rest, MSG_DONTWAIT) > 0; i++) continue;
    close(transport->fd);
}

const ln_net_medium ln_net_socket_medium = {socket_read, socket_write, socket_close, true, socket_expect};

/* ---- a transport over a socket -------------------------------------------------------------------------------- */

/* Lets the system find out that the peer's machine is gone or has started again, also if nobody sends anything: the
 * connection then ends after two minutes. */
static void keep_alive(int fd) {
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
#if defined(TCP_KEEPIDLE) && defined(TCP_KEEPINTVL) && defined(TCP_KEEPCNT)
    const int idle = 60, interval = 15, count = 4;
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
#endif
}

void ln_net_tune(int fd, int family) {
    int one = 1;
    if (family == AF_INET || family == AF_INET6) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        keep_alive(fd);
    }
#if defined(SO_NOSIGPIPE)
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
}

ln_net_transport *ln_net_transport_new(int fd, const ln_net_security *security, bool server) {
    ln_net_transport *transport = calloc(1, sizeof *transport);
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (!transport) return NULL;
    memset(&address, 0, sizeof address);
    transport->medium = &ln_net_socket_medium;
    transport->fd = fd;
    transport->security = security;
    transport->server = server;
    transport->stage_needs = LN_NET_WRITE;
    transport->read_needs = LN_NET_READ;
    transport->write_needs = LN_NET_WRITE;
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0) ln_net_tune(fd, address.ss_family);
    transport->low_water = address.ss_family == AF_INET || address.ss_family == AF_INET6;
    return transport;
}
