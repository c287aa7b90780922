/* bench_sync_rate.c - measures the data rate and the round-trip time of one connection, and compares streams over each
 * transport with plain send and recv. Rounds alternate between them. Usage: bench_sync_rate [ROUNDS [MEGABYTES]]. The
 * TLS rows use a pre-shared key. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "sync_ends.h"
#include "net/stream_send.h"
#include "net/transport_connect.h"
#include "net/transport_listen.h"
#include "net/transport_security.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 100 * 1000 * 1000, PIECE = 256 << 10, TRIPS = 2000, MEDIA = 6, MAX_ROUNDS = 64 };
static const char *const NAMES[MEDIA] = {"raw TCP", "tcp", "unix", "shm", "tcp, TLS", "unix, TLS"};
static const char *const ADDRESSES[MEDIA] = {NULL, "127.0.0.1:0", "unix:%s/u", "shm:%s/m", "127.0.0.1:0", "unix:%s/t"};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const linnet_error *error) {
    char text[512];
    if (error) linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "bench_sync_rate: %s: %s\n", what, error ? text : "failed");
    exit(1);
}

static void all(int fd, unsigned char *data, size_t size, bool out) {
    for (size_t done = 0; done < size;) {
        const size_t part = size - done < PIECE ? size - done : PIECE;
        const ssize_t n = out ? send(fd, data + done, part, MSG_NOSIGNAL) : recv(fd, data + done, part, 0);
        if (n <= 0) fail("raw socket", NULL);
        done += (size_t)n;
    }
}

/* Measures plain sockets: seconds for `messages` messages in one direction, and for a round trip of one frame's
 * bytes. */
static void raw(int messages, unsigned char *data, double *rate, double *trip) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, fd;
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen", NULL);
    const pid_t child = fork();
    if (child == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, length)) fail("connect", NULL);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        for (int i = 0; i < messages; i++) all(fd, data, MESSAGE, true);
        for (int i = 0; i < TRIPS; i++) {
            all(fd, data, LN_NET_HEADER + 32, false);
            all(fd, data, LN_NET_HEADER + 32, true);
        }
        _exit(0);
    }
    fd = accept(listener, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    all(fd, data, MESSAGE, false);
    double begin = now();
    for (int i = 1; i < messages; i++) all(fd, data, MESSAGE, false);
    *rate = now() - begin;
    begin = now();
    for (int i = 0; i < TRIPS; i++) {
        all(fd, data, LN_NET_HEADER + 32, true);
        all(fd, data, LN_NET_HEADER + 32, false);
    }
    *trip = now() - begin;
    close(fd);
    close(listener);
    waitpid(child, NULL, 0);
}

/* Runs turns until this many messages and control frames have arrived and everything is sent. */
static void until(end *self, uint64_t messages, uint64_t controls) {
    while (self->messages < messages || self->controls < controls || !ln_net_stream_idle(self->stream)) {
        ends_step(self, 1, LN_NET_TURN, 1000);
        if (end_gone(self) && (self->messages < messages || self->controls < controls))
            fail("connection", self->flow == LN_NET_BROKEN ? &self->error : NULL);
        if (end_gone(self)) return;
    }
}

static void beat(end *self) {
    ln_net_header header = {.type = LN_SYNC_HEARTBEAT};
    const char payload[32] = {0};
    if (!ln_net_stream_control(self->stream, &header, payload, sizeof payload)) fail("control", NULL);
}

static void streams(const char *address, const ln_net_security *security, int messages, unsigned char *data,
                    double *rate, double *trip) {
    ln_net_listener *listener;
    linnet_error error;
    end self;
    if (ln_net_listen(address, security, false, &listener, &error)) fail("listen", &error);
    const pid_t child = fork();
    end_init(&self, child ? MESSAGE : 0, LN_NET_CHUNK);
    if (child == 0) {
        if (ln_net_connect(ln_net_listener_address(listener), security, false, &self.transport, &error))
            fail("connect", &error);
        for (int i = 0; i < messages; i++) {
            ln_net_header header = {.type = LN_SYNC_PUSH};
            if (!ln_net_stream_bulk(self.stream, &header, data, MESSAGE, 0)) fail("bulk", NULL);
            until(&self, 0, 0);
        }
        for (uint64_t i = 1; i <= TRIPS; i++) {
            until(&self, 0, i);
            beat(&self);
            until(&self, 0, i);
        }
        end_free(&self);
        _exit(0);
    }
    while (!self.transport) {
        struct pollfd ready = {ln_net_listener_fd(listener), POLLIN, 0};
        poll(&ready, 1, 1000);
        if (ln_net_accept(listener, &self.transport, &error)) fail("accept", &error);
    }
    until(&self, 1, 0);
    double begin = now();
    until(&self, (uint64_t)messages, 0);
    *rate = now() - begin;
    begin = now();
    for (uint64_t i = 1; i <= TRIPS; i++) {
        beat(&self);
        until(&self, 0, i);
    }
    *trip = now() - begin;
    end_free(&self);
    ln_net_listener_free(listener);
    waitpid(child, NULL, 0);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 7, messages = (argc > 2 ? atoi(argv[2]) : 1000) / 100 + 1;
    char folder[] = "/tmp/ln-rate-XXXXXX", path[64];
    static double rate[MEDIA][MAX_ROUNDS], trip[MEDIA][MAX_ROUNDS], share[MEDIA][MAX_ROUNDS];
    linnet_error error;
    ln_net_security *security = NULL;
    unsigned char *data = malloc(MESSAGE);
    if (!data || rounds < 1 || rounds > MAX_ROUNDS || messages < 2 || !mkdtemp(folder)) fail("arguments", NULL);
    for (size_t i = 0; i < MESSAGE; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    snprintf(path, sizeof path, "%s/key", folder);
    FILE *key = fopen(path, "w");
    if (!key || chmod(path, 0600) || fprintf(key, "%064d", 7) != 64 || fclose(key)) fail("key file", NULL);
    if (ln_net_security_create(&(ln_net_security_config){.key_file = path}, &security, &error)) {
        char text[512];
        linnet_error_format(&error, text, sizeof text);
        fprintf(stderr, "without TLS: %s\n", text);
    }
    const int media = security ? MEDIA : MEDIA - 2;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < media; i++) {
            char address[96];
            if (ADDRESSES[i]) snprintf(address, sizeof address, ADDRESSES[i], folder);
            if (!ADDRESSES[i])
                raw(messages, data, &rate[i][round], &trip[i][round]);
            else
                streams(address, i < 4 ? NULL : security, messages, data, &rate[i][round], &trip[i][round]);
            share[i][round] = rate[0][round] / rate[i][round];
        }
    for (int i = 0; i < media; i++)
        printf("%-10s %6.2f GB/s, %3.0f %% of raw TCP's; round trip %6.1f us\n", NAMES[i],
               1e-9 * MESSAGE * (messages - 1) / median(rate[i], rounds), 100 * median(share[i], rounds),
               1e6 * median(trip[i], rounds) / TRIPS);
    ln_net_security_free(security);
    unlink(path);
    rmdir(folder);
    free(data);
    return 0;
}
