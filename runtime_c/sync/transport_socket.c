/* transport_socket.c - TCP and Unix stream sockets as a medium: connects, reads into the stream's space, writes.
 * Never blocks. A broken pipe is an error value, never a signal. */
#include "sync/transport_medium.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0 /* macOS uses SO_NOSIGPIPE instead */
#endif
#if !defined(MSG_MORE)
#define MSG_MORE 0
#endif

enum { LOW_WATER = 128 << 10 };

bool ln_sync_unblock(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

/* ---- the medium ------------------------------------------------------------------------------------------------ */

static long broken(ln_sync_transport *transport, const char *what, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, LINNET_CONNECTION_LOST, "%s: %s", what, ln_sync_errno(errno, text, sizeof text));
    ln_sync_at(error, transport->peer);
    return LN_SYNC_FAILED;
}

static long socket_read(ln_sync_transport *transport, void *data, size_t size, linnet_error *error) {
    for (;;) {
        ssize_t got = recv(transport->fd, data, size, 0);
        if (got > 0) return (long)got;
        if (got == 0) return LN_SYNC_END_OF_FILE;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return LN_SYNC_WOULD_BLOCK;
        if (errno != EINTR) return broken(transport, "the connection failed while receiving", error);
    }
}

static long socket_write(ln_sync_transport *transport, const ln_sync_slice *slices, int count, linnet_error *error) {
    struct iovec parts[LN_SYNC_SLICES];
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
        if (put == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return LN_SYNC_WOULD_BLOCK;
        if (errno != EINTR) return broken(transport, "the connection failed while sending", error);
    }
}

static void forget_addresses(ln_sync_transport *transport) {
    if (transport->addresses) freeaddrinfo(transport->addresses);
    transport->addresses = transport->next = NULL;
}

/* A large payload wakes its reader every 128 KB instead of for every segment, because each wake-up costs both sides
 * more than the copying. */
static void socket_expect(ln_sync_transport *transport, size_t size) {
    const int mark = size < LOW_WATER / 4 ? 1 : size < LOW_WATER ? (int)size : LOW_WATER;
    if (!transport->low_water || mark == transport->low_water) return;
    if (setsockopt(transport->fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0) transport->low_water = mark;
}

static void socket_close(ln_sync_transport *transport) {
    char rest[4096];
    forget_addresses(transport);
    if (transport->fd < 0) return;
    /* If a TCP socket is closed with unread bytes, TCP may discard the bytes that were sent last, for example REFUSE.
     * This function therefore reads the bytes that have arrived. */
    if (shutdown(transport->fd, SHUT_WR) == 0)
        for (int i = 0; i < 256 && recv(transport->fd, rest, sizeof rest, MSG_DONTWAIT) > 0; i++) continue;
    close(transport->fd);
}

const ln_sync_medium ln_sync_socket_medium = {socket_read, socket_write, socket_close, true, socket_expect};

/* ---- connecting ------------------------------------------------------------------------------------------------ */

static void tune(int fd, int family) {
    int one = 1;
    if (family == AF_INET || family == AF_INET6) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#if defined(SO_NOSIGPIPE)
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
}

ln_sync_transport *ln_sync_transport_new(int fd, const ln_sync_security *security, bool server) {
    ln_sync_transport *transport = calloc(1, sizeof *transport);
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (!transport) return NULL;
    memset(&address, 0, sizeof address);
    transport->medium = &ln_sync_socket_medium;
    transport->fd = fd;
    transport->security = security;
    transport->server = server;
    transport->stage_needs = LN_SYNC_WRITE;
    transport->read_needs = LN_SYNC_READ;
    transport->write_needs = LN_SYNC_WRITE;
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0) tune(fd, address.ss_family);
    transport->low_water = address.ss_family == AF_INET || address.ss_family == AF_INET6;
    return transport;
}

void ln_sync_stage_after_socket(ln_sync_transport *transport, bool shared_memory) {
    if (shared_memory)
        transport->stage = transport->server ? ln_sync_shm_give : ln_sync_shm_take;
    else
        transport->stage = transport->security ? ln_sync_tls_shake : NULL;
    transport->stage_needs = LN_SYNC_NOW; /* the stage changes this when it blocks */
}

static ln_sync_flow unreachable(ln_sync_transport *transport, int code, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, LINNET_UNREACHABLE, "cannot connect: %s", ln_sync_errno(code, text, sizeof text));
    ln_sync_at(error, transport->peer);
    ln_sync_hint(error, "is the server running and listening at this address?");
    return LN_SYNC_BROKEN;
}

static ln_sync_flow connected(ln_sync_transport *transport, linnet_error *error);

/* Tries the remaining addresses until one is connected or connecting. */
static ln_sync_flow connect_next(ln_sync_transport *transport, int code, linnet_error *error) {
    for (; transport->next; transport->next = transport->next->ai_next) {
        const struct addrinfo *one = transport->next;
        int fd = socket(one->ai_family, SOCK_STREAM, 0);
        if (fd < 0 || !ln_sync_unblock(fd)) {
            code = errno;
            if (fd >= 0) close(fd);
            continue;
        }
        if (transport->fd < 0) {
            transport->fd = fd;
        } else { /* keeps the descriptor number, because the owner polls it */
            if (dup2(fd, transport->fd) < 0 || fcntl(transport->fd, F_SETFD, FD_CLOEXEC) < 0) code = errno;
            close(fd);
        }
        tune(transport->fd, one->ai_family);
        transport->low_water = 1;
        if (connect(transport->fd, one->ai_addr, one->ai_addrlen) == 0) {
            forget_addresses(transport);
            ln_sync_stage_after_socket(transport, false);
            return LN_SYNC_FLOWS;
        }
        code = errno;
        if (code == EINPROGRESS || code == EINTR) {
            transport->next = one->ai_next;
            transport->stage = connected;
            transport->stage_needs = LN_SYNC_WRITE;
            return LN_SYNC_BLOCKED;
        }
    }
    return unreachable(transport, code, error);
}

/* The stage that waits for connect to finish. */
static ln_sync_flow connected(ln_sync_transport *transport, linnet_error *error) {
    struct pollfd ready = {transport->fd, POLLOUT, 0};
    int code = 0;
    socklen_t size = sizeof code;
    if (poll(&ready, 1, 0) <= 0) return LN_SYNC_BLOCKED;
    if (getsockopt(transport->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0) code = errno;
    if (code) return connect_next(transport, code, error);
    forget_addresses(transport);
    ln_sync_stage_after_socket(transport, false);
    return LN_SYNC_FLOWS;
}

/* Tells whether the socket belongs to our user. If everyone can write to the folder, the socket may belong to another
 * user. */
static bool of_our_user(int fd) {
#if defined(__linux__)
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) return false;
    return peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0;
#else
    uid_t user;
    gid_t group;
    if (getpeereid(fd, &user, &group) < 0) return false;
    return user == geteuid() || user == 0 || geteuid() == 0;
#endif
}

static ln_sync_flow connect_unix(ln_sync_transport *transport, const ln_sync_address *address, linnet_error *error) {
    struct sockaddr_un place;
    memset(&place, 0, sizeof place);
    place.sun_family = AF_UNIX;
    memcpy(place.sun_path, address->path, strlen(address->path));
    transport->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (transport->fd < 0 || !ln_sync_unblock(transport->fd)) return unreachable(transport, errno, error);
    tune(transport->fd, AF_UNIX);
    if (connect(transport->fd, (struct sockaddr *)&place, sizeof place) < 0) /* succeeds or fails at once */
        return unreachable(transport, errno, error);
    if (!transport->security && !of_our_user(transport->fd)) {
        ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the socket belongs to a process of another user");
        ln_sync_at(error, transport->peer);
        ln_sync_hint(error, "choose a path in a directory of your own, or give --key FILE on both sides");
        return LN_SYNC_BROKEN;
    }
    ln_sync_stage_after_socket(transport, address->kind == LN_SYNC_SHM);
    return LN_SYNC_FLOWS;
}

linnet_status ln_sync_connect(const char *address, const ln_sync_security *security, bool insecure,
                              ln_sync_transport **out, linnet_error *error) {
    ln_sync_address parts;
    ln_sync_transport *transport;
    ln_sync_flow flow;
    linnet_error why;
    linnet_status status = ln_sync_address_parse(address, &parts, error);
    *out = NULL;
    if (status) return status;
    if (parts.kind == LN_SYNC_TCP && strtol(parts.port, NULL, 10) == 0) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "cannot connect to port 0");
        ln_sync_at(error, address);
        return ln_sync_hint(error, "port 0 lets a server choose a port; give workers the port that the server prints");
    }
    transport = ln_sync_transport_new(-1, security, false);
    if (!transport) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
    snprintf(transport->peer, sizeof transport->peer, "%s", address);
    snprintf(transport->host, sizeof transport->host, "%s", parts.host);
    if (parts.kind == LN_SYNC_TCP) {
        status = ln_sync_address_resolve(&parts, false, security || insecure, &transport->addresses, error);
        transport->next = transport->addresses;
        flow = status ? LN_SYNC_BROKEN : connect_next(transport, 0, &why);
    } else {
        flow = connect_unix(transport, &parts, &why);
    }
    if (flow == LN_SYNC_BROKEN) {
        ln_sync_transport_free(transport);
        if (status) return status;
        if (error) *error = why;
        return (linnet_status)why.code;
    }
    *out = transport;
    return LINNET_OK;
}
