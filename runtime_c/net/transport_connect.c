/* transport_connect.c - opens connections: tries the addresses of a server one after the other, never blocks, and then
 * hands over to shared memory or TLS. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_connect.h"

#include "net/error.h"
#include "net/transport_address.h"
#include "net/transport_flow.h"
#include "net/transport_medium.h"
#include "net/transport_shm.h"
#include "net/transport_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static ln_net_flow unreachable(ln_net_transport *transport, int code, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, LINNET_UNREACHABLE, "cannot connect: %s", ln_net_errno(code, text, sizeof text));
    ln_sync_at(error, transport->peer);
    ln_sync_hint(error, "is the server running and listening at this address?");
    return LN_NET_BROKEN;
}

static ln_net_flow connected(ln_net_transport *transport, linnet_error *error);

/* Tries the remaining addresses until one is connected or connecting. */
static ln_net_flow connect_next(ln_net_transport *transport, int code, linnet_error *error) {
    for (; transport->next; transport->next = transport->next->ai_next) {
        const struct addrinfo *one = transport->next;
        int fd = socket(one->ai_family, SOCK_STREAM, 0);
        if (fd < 0 || !ln_net_unblock(fd)) {
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
        ln_net_tune(transport->fd, one->ai_family);
        transport->low_water = 1;
        if (connect(transport->fd, one->ai_addr, one->ai_addrlen) == 0) {
            ln_net_forget_addresses(transport);
            ln_net_stage_after_socket(transport, false);
            return LN_NET_FLOWS;
        }
        code = errno;
        if (code == EINPROGRESS || code == EINTR) {
            transport->next = one->ai_next;
            transport->stage = connected;
            transport->stage_needs = LN_NET_WRITE;
            return LN_NET_BLOCKED;
        }
    }
    return unreachable(transport, code, error);
}

/* The stage that waits for connect to finish. */
static ln_net_flow connected(ln_net_transport *transport, linnet_error *error) {
    struct pollfd ready = {transport->fd, POLLOUT, 0};
    int code = 0;
    socklen_t size = sizeof code;
    if (poll(&ready, 1, 0) <= 0) return LN_NET_BLOCKED;
    if (getsockopt(transport->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0) code = errno;
    if (code) return connect_next(transport, code, error);
    ln_net_forget_addresses(transport);
    ln_net_stage_after_socket(transport, false);
    return LN_NET_FLOWS;
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

static ln_net_flow connect_unix(ln_net_transport *transport, const ln_net_address *address, linnet_error *error) {
    struct sockaddr_un place;
    memset(&place, 0, sizeof place);
    place.sun_family = AF_UNIX;
    memcpy(place.sun_path, address->path, strlen(address->path));
    transport->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (transport->fd < 0 || !ln_net_unblock(transport->fd)) return unreachable(transport, errno, error);
    ln_net_tune(transport->fd, AF_UNIX);
    if (connect(transport->fd, (struct sockaddr *)&place, sizeof place) < 0) /* succeeds or fails at once */
        return unreachable(transport, errno, error);
    if (!transport->security && !of_our_user(transport->fd)) {
        ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the socket belongs to a process of another user");
        ln_sync_at(error, transport->peer);
        ln_sync_hint(error, "choose a path in a folder of your own, or give --key FILE on both sides");
        return LN_NET_BROKEN;
    }
    ln_net_stage_after_socket(transport, address->kind == LN_NET_SHM);
    return LN_NET_FLOWS;
}

linnet_status ln_net_connect(const char *address, const ln_net_security *security, bool insecure,
                             ln_net_transport **out, linnet_error *error) {
    ln_net_address parts;
    ln_net_transport *transport;
    ln_net_flow flow;
    linnet_error why;
    linnet_status status = ln_net_address_parse(address, &parts, error);
    *out = NULL;
    if (status) return status;
    if (parts.kind == LN_NET_TCP && strtol(parts.port, NULL, 10) == 0) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "cannot connect to port 0");
        ln_sync_at(error, address);
        return ln_sync_hint(error, "port 0 lets a server choose a port; give workers the port that the server prints");
    }
    transport = ln_net_transport_new(-1, security, false);
    if (!transport) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
    snprintf(transport->peer, sizeof transport->peer, "%s", address);
    snprintf(transport->host, sizeof transport->host, "%s", parts.host);
    if (parts.kind == LN_NET_TCP) {
        status = ln_net_address_resolve(&parts, false, security || insecure, &transport->addresses, error);
        transport->next = transport->addresses;
        flow = status ? LN_NET_BROKEN : connect_next(transport, 0, &why);
    } else {
        flow = connect_unix(transport, &parts, &why);
    }
    if (flow == LN_NET_BROKEN) {
        ln_net_transport_free(transport);
        if (status) return status;
        if (error) *error = why;
        return (linnet_status)why.code;
    }
    *out = transport;
    return LINNET_OK;
}
