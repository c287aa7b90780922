/* transport_listen.c - listeners, which accept connections on TCP ports and at paths.
 * A socket that a dead server left at the path is replaced. A live socket or any other file is not. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_listen.h"

#include "net/error.h"
#include "net/transport_address.h"
#include "net/transport_medium.h"
#include "net/transport_shm.h"
#include "net/transport_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 }; /* the system reduces it to its own limit */

struct ln_net_listener {
    const ln_net_security *security;
    ln_net_address parts;
    int fd;
    int spare; /* a descriptor in reserve; -1: none. When the process has no more descriptors, this one is closed so
                  that a waiting connection can be accepted and closed at once */
    dev_t device;
    ino_t inode; /* inode of our socket at the path */
    char address[300];
};

static linnet_status cannot_listen(const ln_net_listener *listener, int code, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, LINNET_UNREACHABLE, "cannot listen: %s", ln_net_errno(code, text, sizeof text));
    ln_sync_at(error, listener->address);
    if (code == EADDRINUSE)
        return ln_sync_hint(error, "another process listens at this address; port 0 lets the system choose a port");
    if (code == EACCES) return ln_sync_hint(error, "ports below 1024 and folders of other users need privileges");
    return (linnet_status)LINNET_UNREACHABLE;
}

static void name_of(const struct sockaddr_storage *address, char *text, size_t size) {
    char host[INET6_ADDRSTRLEN] = "";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%u", host, (unsigned)ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%u", host, (unsigned)ntohs(v4->sin_port));
    }
}

static linnet_status listen_tcp(ln_net_listener *listener, bool insecure, linnet_error *error) {
    struct addrinfo *found;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    int on = 1, off = 0, code = 0;
    linnet_status status =
        ln_net_address_resolve(&listener->parts, true, listener->security || insecure, &found, error);
    if (status) return status;
    for (const struct addrinfo *one = found; one && listener->fd < 0; one = one->ai_next) {
        int fd = socket(one->ai_family, SOCK_STREAM, 0);
        if (fd >= 0) {
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (one->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        }
        if (fd >= 0 && ln_net_unblock(fd) && bind(fd, one->ai_addr, one->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
            listener->fd = fd;
        else {
            code = errno;
            if (fd >= 0) close(fd);
        }
    }
    freeaddrinfo(found);
    if (listener->fd < 0) return cannot_listen(listener, code, error);
    if (getsockname(listener->fd, (struct sockaddr *)&bound, &size) < 0) return cannot_listen(listener, errno, error);
    name_of(&bound, listener->address, sizeof listener->address);
    return LINNET_OK;
}

/* Tells whether nobody listens at the socket file: its process ended without removing it. */
static bool stale(const struct sockaddr_un *place) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), refused;
    if (fd < 0) return false;
    refused =
        ln_net_unblock(fd) && connect(fd, (const struct sockaddr *)place, sizeof *place) < 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

static linnet_status listen_unix(ln_net_listener *listener, linnet_error *error) {
    const char *path = listener->parts.path;
    struct sockaddr_un place;
    struct stat file;
    memset(&place, 0, sizeof place);
    place.sun_family = AF_UNIX;
    memcpy(place.sun_path, path, strlen(path));
    if (lstat(path, &file) == 0) {
        if (!S_ISSOCK(file.st_mode)) {
            ln_sync_fail(error, LINNET_UNREACHABLE, "cannot listen: the path exists and is not a socket");
            ln_sync_at(error, listener->address);
            return ln_sync_hint(error, "choose a path that does not exist");
        }
        if (!stale(&place)) return cannot_listen(listener, EADDRINUSE, error);
        if (unlink(path) < 0 && errno != ENOENT) return cannot_listen(listener, errno, error);
    }
    listener->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    /* Sets the mode before it calls listen, because nobody can connect before that call. */
    if (listener->fd < 0 || !ln_net_unblock(listener->fd) ||
        bind(listener->fd, (const struct sockaddr *)&place, sizeof place) < 0)
        return cannot_listen(listener, errno, error);
    if (lstat(path, &file) == 0) {
        listener->device = file.st_dev;
        listener->inode = file.st_ino;
    }
    if (chmod(path, 0600) < 0 || listen(listener->fd, BACKLOG) < 0) return cannot_listen(listener, errno, error);
    return LINNET_OK;
}

linnet_status ln_net_listen(const char *address, const ln_net_security *security, bool insecure, ln_net_listener **out,
                            linnet_error *error) {
    ln_net_listener *listener;
    ln_net_address parts;
    linnet_status status = ln_net_address_parse(address, &parts, error);
    *out = NULL;
    if (status) return status;
#if !defined(__linux__)
    if (parts.kind == LN_NET_SHM) {
        ln_sync_fail(error, LINNET_UNSUPPORTED, "shared memory connections exist only on Linux");
        ln_sync_at(error, address);
        return ln_sync_hint(error, "use unix:%s", parts.path);
    }
#endif
    listener = calloc(1, sizeof *listener);
    if (!listener) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a listener");
    listener->security = security;
    listener->parts = parts;
    listener->fd = listener->spare = -1;
    snprintf(listener->address, sizeof listener->address, "%s", address);
    status = parts.kind == LN_NET_TCP ? listen_tcp(listener, insecure, error) : listen_unix(listener, error);
    if (status) {
        ln_net_listener_free(listener);
        return status;
    }
    listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *out = listener;
    return LINNET_OK;
}

int ln_net_listener_fd(const ln_net_listener *listener) { return listener->fd; }
const char *ln_net_listener_address(const ln_net_listener *listener) { return listener->address; }

/* Handles a connection for which the process has no descriptor: accepts it in place of the spare descriptor and closes
 * it at once, so that the peer does not wait in vain. */
static linnet_status turn_away(ln_net_listener *listener, int code, linnet_error *error) {
    char text[96];
    bool waited = false;
    if (listener->spare >= 0) {
        int fd;
        close(listener->spare);
        fd = accept(listener->fd, NULL, NULL);
        waited = fd >= 0;
        if (waited) close(fd);
        listener->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (!waited) return LINNET_OK;
    }
    ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "a connection %s: %s", waited ? "was turned away" : "cannot be accepted",
                 ln_net_errno(code, text, sizeof text));
    ln_sync_at(error, listener->address);
    return ln_sync_hint(error, "raise the limit of open files (ulimit -n)");
}

static void describe(const ln_net_listener *listener, int fd, const struct sockaddr_storage *address,
                     ln_net_transport *transport) {
    if (listener->parts.kind == LN_NET_TCP) {
        name_of(address, transport->peer, sizeof transport->peer);
        return;
    }
#if defined(__linux__)
    {
        struct ucred peer;
        socklen_t size = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) {
            snprintf(transport->peer, sizeof transport->peer, "process %ld", (long)peer.pid);
            return;
        }
    }
#endif
    (void)fd;
    snprintf(transport->peer, sizeof transport->peer, "a process at %.120s", listener->parts.path);
}

linnet_status ln_net_accept(ln_net_listener *listener, ln_net_transport **out, linnet_error *error) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    ln_net_transport *transport;
    char text[96];
    int fd;
    *out = NULL;
    memset(&address, 0, sizeof address);
    do fd = accept(listener->fd, (struct sockaddr *)&address, &size);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return LINNET_OK;
        if (errno == EMFILE || errno == ENFILE) return turn_away(listener, errno, error);
        ln_sync_fail(error, LINNET_CONNECTION_LOST, "cannot accept a connection: %s",
                     ln_net_errno(errno, text, sizeof text));
        return ln_sync_at(error, listener->address);
    }
    transport = ln_net_unblock(fd) ? ln_net_transport_new(fd, listener->security, true) : NULL;
    if (!transport) {
        close(fd);
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a connection");
    }
    describe(listener, fd, &address, transport);
    ln_net_stage_after_socket(transport, listener->parts.kind == LN_NET_SHM);
    *out = transport;
    return LINNET_OK;
}

void ln_net_listener_free(ln_net_listener *listener) {
    struct stat file;
    if (!listener) return;
    if (listener->inode && lstat(listener->parts.path, &file) == 0 && file.st_ino == listener->inode &&
        file.st_dev == listener->device)
        unlink(listener->parts.path);
    if (listener->fd >= 0) close(listener->fd);
    if (listener->spare >= 0) close(listener->spare);
    free(listener);
}
