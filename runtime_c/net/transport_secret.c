/* transport_secret.c - reads files that hold secrets. They must belong to our user, be readable by nobody else, and not
 * be too long. The checks are made on the opened file, so nobody can replace the file between the check and the
 * reading. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_secret.h"

#include "net/error.h"
#include "net/transport_address.h"
#include "net/transport_security_state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static linnet_status unreadable(const char *path, int code, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, code == ENOENT ? LINNET_NOT_FOUND : LINNET_READ_FAILED, "cannot read the key: %s",
                 ln_net_errno(code, text, sizeof text));
    ln_sync_at(error, path);
    return ln_sync_hint(error, "linnet sync-key FILE makes one");
}

/* Opens the file if it is safe for a secret. */
static int open_secret(const char *path, linnet_error *error) {
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &file) < 0) {
        int code = errno;
        if (fd >= 0) close(fd);
        unreadable(path, code, error);
        return -1;
    }
    if (S_ISREG(file.st_mode) && (file.st_mode & 077) == 0 && (file.st_uid == geteuid() || file.st_uid == 0)) return fd;
    close(fd);
    if (!S_ISREG(file.st_mode)) {
        ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the key file is not a regular file");
        ln_sync_at(error, path);
    } else if (file.st_mode & 077) {
        ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "other users can access the key file");
        ln_sync_at(error, path);
        ln_sync_expected(error, "mode 600 or 400");
        ln_sync_got(error, "mode %o", (unsigned)(file.st_mode & 0777));
        ln_sync_hint(error, "run chmod 600 on it, and make a new key if others may have read it");
    } else {
        ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the key file belongs to another user");
        ln_sync_at(error, path);
        ln_sync_expected(error, "user %lu or root", (unsigned long)geteuid());
        ln_sync_got(error, "user %lu", (unsigned long)file.st_uid);
    }
    return -1;
}

linnet_status ln_net_secret_check(const char *path, linnet_error *error) {
    linnet_error why;
    int fd = open_secret(path, &why);
    if (fd < 0) {
        if (error) *error = why;
        return (linnet_status)why.code;
    }
    close(fd);
    return LINNET_OK;
}

static int digit(unsigned char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Converts hex digits, which may be followed by white space, to bytes. Leaves anything else unchanged. */
static size_t decode(unsigned char *text, size_t size) {
    size_t end = size;
    while (end > 0 && strchr(" \t\r\n", text[end - 1]) && text[end - 1]) end--;
    if (end < 2 * (size_t)LN_NET_KEY_MIN || end % 2) return size;
    for (size_t i = 0; i < end; i++)
        if (digit(text[i]) < 0) return size;
    for (size_t i = 0; i < end / 2; i++) text[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return end / 2;
}

void ln_net_wipe(void *data, size_t size) {
    volatile unsigned char *bytes = data;
    while (size--) *bytes++ = 0;
}

/* Tells whether the key is all zeros, as bytes or as any number of digits. Zeros may come from an empty disk or a
 * template, and are not a secret. */
static bool is_zero(const unsigned char *key, size_t size) {
    size_t same = 0;
    while (same < size && key[same] == key[0]) same++;
    while (same < size && strchr(" \t\r\n", key[same])) same++; /* white space after an odd number of digits */
    return same == size && (key[0] == 0 || key[0] == '0');
}

linnet_status ln_net_secret_read(const char *path, unsigned char key[LN_NET_KEY_MAX], size_t *size,
                                 linnet_error *error) {
    unsigned char text[2 * LN_NET_KEY_MAX + 64];
    size_t length = 0;
    linnet_error why;
    linnet_status status = LINNET_OK;
    int fd = open_secret(path, &why);
    if (fd < 0) {
        if (error) *error = why;
        return (linnet_status)why.code;
    }
    while (length < sizeof text) {
        ssize_t got = read(fd, text + length, sizeof text - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = unreadable(path, errno, error);
        if (got <= 0) break;
        length += (size_t)got;
    }
    close(fd);
    *size = decode(text, length);
    if (!status && (*size < LN_NET_KEY_MIN || *size > LN_NET_KEY_MAX)) {
        status = ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the key has the wrong length");
        ln_sync_at(error, path);
        ln_sync_expected(error, "%d to %d bytes, or twice as many hex digits", LN_NET_KEY_MIN, LN_NET_KEY_MAX);
        ln_sync_got(error, length == sizeof text ? "more than %zu bytes" : "%zu bytes", length);
        ln_sync_hint(error, "linnet sync-key FILE makes one");
    }
    if (!status && is_zero(text, *size)) {
        status = ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the key is all zeros");
        ln_sync_at(error, path);
        ln_sync_expected(error, "%d random bytes or more", LN_NET_KEY_MIN);
        ln_sync_hint(error, "linnet sync-key FILE makes one");
    }
    if (!status) memcpy(key, text, *size);
    ln_net_wipe(text, sizeof text);
    return status;
}
