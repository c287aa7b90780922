/* ping_remote.c - a bare ping-pong over linnet's transports, which tests/bench_remote.py compares runs on hosts with.
 * `ping_remote serve ADDRESS` echoes each message; `ping_remote ADDRESS BYTES ROUNDS` prints the median of the rounds
 * in microseconds. A message that begins with SUBMIT's type goes there, ANSWER's comes back. */
#define _POSIX_C_SOURCE 200809L
#include "net/bytes.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "remote/link.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct peer {
    unsigned char *bytes;
    size_t size;
    int arrived;
} peer;

static ln_net_refusal receive(void *context, ln_remote_link *link, uint8_t type, const unsigned char *bytes,
                              size_t size) {
    peer *p = context;
    (void)link, (void)type;
    if (bytes == NULL || size > p->size) return LN_NET_FULL;
    memcpy(p->bytes, bytes, size);
    p->arrived++;
    return LN_NET_FINE;
}

static int fail(const linnet_error *error) {
    char text[1024];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static ln_remote_link *open_link(ln_net_transport *transport, peer *p) {
    ln_remote_link *link = ln_remote_link_new(transport, NULL, receive, p);
    if (link != NULL) ln_remote_link_open(link, LN_REMOTE_CHUNK);
    return link;
}

static int serve(const char *address) {
    linnet_error error = {0};
    ln_net_listener *listener = NULL;
    ln_net_transport *transport = NULL;
    peer p = {.size = 1 << 26, .bytes = malloc(1 << 26)};
    if (p.bytes == NULL || ln_net_listen(address, NULL, false, &listener, &error) != LINNET_OK) return fail(&error);
    printf("listening %s\n", ln_net_listener_address(listener));
    fflush(stdout);
    while (transport == NULL) {
        struct pollfd fd = {.fd = ln_net_listener_fd(listener), .events = POLLIN};
        poll(&fd, 1, -1);
        if (ln_net_accept(listener, &transport, &error) != LINNET_OK) return fail(&error);
    }
    ln_remote_link *link = open_link(transport, &p);
    const size_t header = 8;
    while (link != NULL) { /* the next message may have come while the answer to the last one was sent */
        if (p.arrived == 0 && ln_remote_link_turn(link, -1, &error) != LINNET_OK) break;
        if (p.arrived == 0) continue;
        p.arrived = 0;
        const size_t size = get32(p.bytes) >= header ? get32(p.bytes) : header;
        if (ln_remote_link_send(link, LN_REMOTE_ANSWER, p.bytes, size, &error) != LINNET_OK) break;
    }
    ln_remote_link_free(link);
    ln_net_listener_free(listener);
    free(p.bytes);
    return 0;
}

static int ping(const char *address, uint32_t size, int rounds) {
    linnet_error error = {0};
    ln_net_transport *transport = NULL;
    peer p = {.size = size, .bytes = malloc(size)};
    unsigned char *out = calloc(1, size);
    double *times = malloc((size_t)rounds * sizeof *times);
    if (p.bytes == NULL || out == NULL || times == NULL) return 1;
    if (ln_net_connect(address, NULL, false, &transport, &error) != LINNET_OK) return fail(&error);
    ln_remote_link *link = open_link(transport, &p);
    put32(out, size);
    for (int i = 0; i < rounds && link != NULL; i++) {
        const double begin = now();
        if (ln_remote_link_send(link, LN_REMOTE_SUBMIT, out, size, &error) != LINNET_OK) return fail(&error);
        while (p.arrived <= i)
            if (ln_remote_link_turn(link, -1, &error) != LINNET_OK) return fail(&error);
        times[i] = now() - begin;
    }
    qsort(times, (size_t)rounds, sizeof *times, by_size);
    printf("%.3f\n", times[rounds / 2]);
    ln_remote_link_free(link);
    free(p.bytes);
    free(out);
    free(times);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
    if (argc == 4 && atoi(argv[2]) >= 8 && atoi(argv[3]) > 0)
        return ping(argv[1], (uint32_t)atoi(argv[2]), atoi(argv[3]));
    fprintf(stderr, "usage: ping_remote serve ADDRESS | ping_remote ADDRESS BYTES ROUNDS\n");
    return 2;
}
