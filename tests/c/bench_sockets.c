/* bench_sockets.c - measures a null training step over plain sockets: the lower bound for tests/bench_sync.py.
 * `serve BYTES` answers requests with one thread per worker. `work COUNT SIZE BYTES PORT` reads a number of requests
 * from stdin and sends this number of requests. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 64 };

/* A request for `count` pieces of `size` bytes of the table, at these offsets. The answer has count * size bytes. */
typedef struct request {
    uint32_t count, reserved;
    uint64_t size;
    uint64_t offset[PARTS];
} request;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static size_t request_bytes(const request *r) { return 16 + 8 * (size_t)r->count; }

static int no_delay(int fd) {
    int one = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static bool receive(int fd, void *data, uint64_t size) {
    for (uint64_t got = 0; got < size;) {
        ssize_t n = read(fd, (char *)data + got, size - got);
        if (n <= 0) return false;
        got += (uint64_t)n;
    }
    return true;
}

typedef struct connection {
    int fd;
    char *table;
} connection;

/* Answers one worker until it leaves. */
static void *answer(void *argument) {
    connection *c = argument;
    request r;
    while (receive(c->fd, &r, 16) && receive(c->fd, r.offset, 8 * (uint64_t)r.count)) {
        struct iovec pieces[PARTS];
        for (uint32_t i = 0; i < r.count; i++) pieces[i] = (struct iovec){c->table + r.offset[i], r.size};
        struct iovec *next = pieces;
        for (uint64_t left = r.count * r.size; left;) {
            ssize_t sent = writev(c->fd, next, (int)(pieces + r.count - next));
            if (sent < 0) fail("writev");
            left -= (uint64_t)sent;
            for (; left && (size_t)sent >= next->iov_len; next++) sent -= (ssize_t)next->iov_len;
            if (left) {
                next->iov_base = (char *)next->iov_base + sent;
                next->iov_len -= (size_t)sent;
            }
        }
    }
    close(c->fd);
    free(c);
    return NULL;
}

static int serve(uint64_t bytes) {
    char *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) fail("mmap");
    for (uint64_t at = 0; at < bytes; at += 4096) table[at] = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 64) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct pollfd fds[2] = {{.fd = listener, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    while (poll(fds, 2, -1) > 0 && !fds[1].revents) { /* until the parent process has ended */
        connection *c = malloc(sizeof *c);
        pthread_t thread;
        if (!c || (c->fd = accept(listener, NULL, NULL)) < 0 || no_delay(c->fd)) fail("accept");
        c->table = table;
        if (pthread_create(&thread, NULL, answer, c) || pthread_detach(thread)) fail("pthread_create");
    }
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int work(int port, uint32_t count, uint64_t size, uint64_t bytes) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) || no_delay(fd)) fail("connect");
    char *values = malloc(count * size);
    if (!values || count > PARTS) fail("malloc");
    memset(values, 0, count * size);
    request r = {.count = count, .size = size};
    uint64_t random = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    char line[64];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (long step = strtol(line, NULL, 10); step > 0; step--) {
            for (uint32_t i = 0; i < count; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                r.offset[i] = count == 1 ? 0 : (random >> 16) % (bytes / size) * size;
            }
            double begin = now();
            if (write(fd, &r, request_bytes(&r)) != (ssize_t)request_bytes(&r)) fail("write");
            if (!receive(fd, values, count * size)) fail("read");
            printf("%.1f ", 1e6 * (now() - begin));
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "serve")) return serve(strtoull(argv[2], NULL, 10));
    if (argc == 6 && !strcmp(argv[1], "work"))
        return work(atoi(argv[5]), (uint32_t)strtoul(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                    strtoull(argv[4], NULL, 10));
    fprintf(stderr, "usage: bench_sockets serve BYTES | work COUNT SIZE BYTES PORT\n");
    return 2;
}
