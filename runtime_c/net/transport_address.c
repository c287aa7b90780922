/* transport_address.c - parses addresses: host:port, [v6]:port, :port, *:port, unix:PATH, shm:PATH.
 * Also decides which addresses may be used without a key. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_address.h"

#include "net/error.h"
#include "net/transport_medium.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

_Static_assert(sizeof((struct sockaddr_un *)0)->sun_path <= sizeof((ln_net_address *)0)->path, "a path fits");

const char *ln_net_errno(int code, char *text, size_t size) {
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
    return strerror_r(code, text, size);
#else
    if (strerror_r(code, text, size)) snprintf(text, size, "error %d", code);
    return text;
#endif
}

static linnet_status malformed(const char *text, const char *what, linnet_error *error) {
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "%s", what);
    ln_sync_at(error, text);
    ln_sync_expected(error, "host:port, [IPv6]:port, :port, unix:PATH or shm:PATH");
    return ln_sync_got(error, "\"%s\"", text);
}

static linnet_status parse_path(const char *text, const char *path, ln_net_address *address, linnet_error *error) {
    size_t length = strlen(path), room = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (!length) return malformed(text, "the address has no path", error);
    if (length > room) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the path of the socket is too long");
        ln_sync_at(error, text);
        ln_sync_expected(error, "at most %zu bytes", room);
        ln_sync_got(error, "%zu bytes", length);
        return ln_sync_hint(error, "choose a shorter path, or one relative to the working directory");
    }
    memcpy(address->path, path, length + 1);
    return LINNET_OK;
}

static bool port_of(const char *text, ln_net_address *address) {
    size_t length = strlen(text);
    long value = 0;
    if (length < 1 || length > 5) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (text[i] - '0');
    }
    memcpy(address->port, text, length + 1);
    return value <= 65535;
}

linnet_status ln_net_address_parse(const char *text, ln_net_address *address, linnet_error *error) {
    const char *host = text, *end, *port;
    memset(address, 0, sizeof *address);
    if (!text || !*text) return malformed(text ? text : "", "the address is empty", error);
    if (strncmp(text, "unix:", 5) == 0 || strncmp(text, "shm:", 4) == 0) {
        address->kind = *text == 'u' ? LN_NET_UNIX : LN_NET_SHM;
        return parse_path(text, strchr(text, ':') + 1, address, error);
    }
    address->kind = LN_NET_TCP;
    if (*text == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (!end || end[1] != ':') return malformed(text, "an IPv6 address is written [address]:port", error);
        port = end + 2;
    } else {
        end = strchr(text, ':');
        if (!end) return malformed(text, "the address has no port", error);
        if (strchr(end + 1, ':')) return malformed(text, "an IPv6 address is written [address]:port", error);
        port = end + 1;
    }
    if ((size_t)(end - host) >= sizeof address->host) return malformed(text, "the host name is too long", error);
    memcpy(address->host, host, (size_t)(end - host));
    if (!port_of(port, address)) return malformed(text, "the port is not a number from 0 to 65535", error);
    return LINNET_OK;
}

static bool loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return false;
}

linnet_status ln_net_address_resolve(const ln_net_address *address, bool listening, bool guarded, struct addrinfo **out,
                                     linnet_error *error) {
    bool any = strcmp(address->host, "*") == 0;
    const char *host = any ? NULL : *address->host ? address->host : "127.0.0.1";
    struct addrinfo hints;
    int code;
    *out = NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = any ? AF_INET : AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (listening ? AI_PASSIVE : 0);
    code = getaddrinfo(host, address->port, &hints, out);
    if (code) {
        *out = NULL;
        ln_sync_fail(error, LINNET_UNREACHABLE, "cannot resolve the host name: %s", gai_strerror(code));
        return ln_sync_at(error, address->host);
    }
    for (const struct addrinfo *one = *out; one && !guarded; one = one->ai_next) {
        if (loopback(one->ai_addr)) continue;
        freeaddrinfo(*out);
        *out = NULL;
        ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "connections to other machines need a key");
        ln_sync_at(error, any ? "*" : address->host);
        ln_sync_expected(error, "a key, or an address of this machine (127.0.0.1, [::1], unix:PATH, shm:PATH)");
        ln_sync_got(error, "%s:%s and no key", any ? "*" : address->host, address->port);
        return ln_sync_hint(error,
                            "give --key FILE (`linnet sync-key FILE` makes one), or --insecure on a private network");
    }
    return LINNET_OK;
}
