/* test_sync_transport.c - TCP, Unix sockets and shared memory: bytes of any sizes arrive once and unchanged in both
 * directions at the same time. Also tests addresses, who may connect, and ends that disappear. test_sync_shm.c has
 * hostile shared memory. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* mkdtemp, struct ucred */
#endif

#include "sync_ends.h"
#include "net/stream_send.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const ADDRESSES[] = {"127.0.0.1:0", "[::1]:0", "localhost:0", ":0", "unix:%s/s", "shm:%s/m"};
static char folder[64] = "/tmp/ln-sync-XXXXXX";

static const char *place(int i) {
    static char text[6][128];
    snprintf(text[i], sizeof text[i], ADDRESSES[i], folder);
    return text[i];
}

static void fill(unsigned char *data, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(check_random(&seed) >> 33);
}

/* Both ends send `count` messages of `size` bytes and control frames between them. */
static void exchange(const char *address, size_t size, int count, uint32_t chunk, size_t bound) {
    end ends[2];
    linnet_error error;
    unsigned char *data[2] = {malloc(size + 1), malloc(size + 1)};
    int queued[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        end_init(&ends[i], size, chunk);
        fill(data[i], size, (uint64_t)i + 1);
    }
    if (ends_connect(ends, address, NULL, NULL, &error)) {
        char text[512];
        linnet_error_format(&error, text, sizeof text);
        CHECK_TEXT(text, "");
    } else {
        for (int idle = 0; idle < 50;) {
            for (int i = 0; i < 2; i++) {
                ln_net_header header = {.type = LN_SYNC_PUSH};
                ln_net_header beat = {.type = LN_SYNC_HEARTBEAT};
                char payload[32] = {0};
                if (queued[i] < count && queued[i] - (int)ends[i].released < ENDS_PLACES &&
                    ln_net_stream_control(ends[i].stream, &beat, payload, sizeof payload)) {
                    CHECK(ln_net_stream_bulk(ends[i].stream, &header, data[i], size, 7));
                    queued[i]++;
                }
            }
            if (ends[0].messages == (uint64_t)count && ends[1].messages == (uint64_t)count) break;
            idle = ends_step(ends, 2, bound, 100) ? 0 : idle + 1;
        }
        for (int i = 0; i < 2; i++) {
            uint64_t received, sent, other_received, other_sent;
            ln_net_transport_counts(ends[i].transport, &received, &sent);
            ln_net_transport_counts(ends[1 - i].transport, &other_received, &other_sent);
            CHECK_INT(received, other_sent);
            CHECK_INT(ends[i].messages, count);
            CHECK_INT(ends[i].controls, count);
            CHECK(memcmp(ends[i].inbox, data[1 - i], size) == 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        end_free(&ends[i]);
        free(data[i]);
    }
}

static void traffic(void) {
    for (int i = 0; i < 6; i++) {
        exchange(place(i), 100, 300, LN_NET_CHUNK_MIN, LN_NET_TURN);
        exchange(place(i), 5 << 20, 4, LN_NET_CHUNK, LN_NET_TURN);
        exchange(place(i), 100003, 20, 5000, 777);
    }
}

/* ---- addresses, and who may connect ----------------------------------------------------------------------------- */

static void listening(const char *address, bool insecure, int status, const char *words) {
    ln_net_listener *listener;
    linnet_error error;
    char text[1024] = "";
    CHECK_INT(ln_net_listen(address, NULL, insecure, &listener, &error), status);
    CHECK((listener != NULL) == !status);
    if (status) linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(strstr(text, words) ? words : text, words);
    ln_net_listener_free(listener);
}

static void connecting(const char *address, int status, const char *words) {
    ln_net_transport *transport;
    linnet_error error;
    char text[1024] = "";
    CHECK_INT(ln_net_connect(address, NULL, false, &transport, &error), status);
    CHECK((transport != NULL) == !status);
    if (status) linnet_error_format(&error, text, sizeof text);
    CHECK_TEXT(strstr(text, words) ? words : text, words);
    ln_net_transport_free(transport);
}

static void addresses(void) {
    char longer[400];
    listening("", false, LINNET_INVALID_ARGUMENT, "the address is empty");
    listening("localhost", false, LINNET_INVALID_ARGUMENT, "has no port");
    listening("localhost:", false, LINNET_INVALID_ARGUMENT, "not a number from 0 to 65535");
    listening("localhost:65536", false, LINNET_INVALID_ARGUMENT, "not a number from 0 to 65535");
    listening("localhost:-1", false, LINNET_INVALID_ARGUMENT, "not a number from 0 to 65535");
    listening("localhost:http", false, LINNET_INVALID_ARGUMENT, "not a number from 0 to 65535");
    listening("::1:80", false, LINNET_INVALID_ARGUMENT, "[address]:port");
    listening("[::1]", false, LINNET_INVALID_ARGUMENT, "[address]:port");
    listening("[::1", false, LINNET_INVALID_ARGUMENT, "[address]:port");
    listening("unix:", false, LINNET_INVALID_ARGUMENT, "has no path");
    listening("shm:", false, LINNET_INVALID_ARGUMENT, "has no path");
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "unix:", 5);
    longer[sizeof longer - 1] = 0;
    listening(longer, false, LINNET_INVALID_ARGUMENT, "got 394 bytes");
    memcpy(longer + sizeof longer - 4, ":80", 4);
    listening(longer + 5, false, LINNET_INVALID_ARGUMENT, "the host name is too long");
    listening("no-such-host.invalid:0", true, LINNET_UNREACHABLE, "cannot resolve the host name");
    listening("*:0", false, LINNET_NOT_AUTHENTICATED, "--insecure");
    listening("0.0.0.0:0", false, LINNET_NOT_AUTHENTICATED, "--key FILE");
    listening("[::]:0", false, LINNET_NOT_AUTHENTICATED, "--key FILE");
    listening("192.0.2.1:0", false, LINNET_NOT_AUTHENTICATED, "--key FILE");
    listening("192.0.2.1:0", true, LINNET_UNREACHABLE, "cannot listen");
    listening("*:0", true, LINNET_OK, "");
    listening("127.1.2.3:0", false, LINNET_OK, "");
    listening("[::ffff:127.0.0.1]:0", false, LINNET_OK, "");
    listening("[::ffff:192.0.2.1]:0", false, LINNET_NOT_AUTHENTICATED, "--key FILE");
    listening("unix:/nowhere/at/all", false, LINNET_UNREACHABLE, "No such file");
    connecting("192.0.2.1:80", LINNET_NOT_AUTHENTICATED, "connections to other machines need a key");
    connecting(":0", LINNET_INVALID_ARGUMENT, "cannot connect to port 0");
    connecting("unix:/nowhere/at/all", LINNET_UNREACHABLE, "is the server running");
    connecting("shm:/nowhere/at/all", LINNET_UNREACHABLE, "is the server running");
}

/* Connects to a port where nobody listens any more. */
static void nobody(void) {
    ln_net_listener *listener;
    linnet_error error;
    char address[64];
    end client;
    linnet_status status;
    CHECK_INT(ln_net_listen(":0", NULL, false, &listener, &error), LINNET_OK);
    snprintf(address, sizeof address, "%s", ln_net_listener_address(listener));
    ln_net_listener_free(listener);
    end_init(&client, 0, LN_NET_CHUNK);
    status = ln_net_connect(address, NULL, false, &client.transport, &error);
    for (int i = 0; !status && i < 50 && !end_gone(&client); i++) ends_step(&client, 1, LN_NET_TURN, 100);
    if (!status) error = client.error;
    CHECK_INT(error.code, LINNET_UNREACHABLE);
    CHECK(strstr(error.what, "refused") != NULL);
    end_free(&client);
}

static void paths(void) {
    ln_net_listener *listener, *second;
    linnet_error error;
    struct stat file;
    char address[128], path[100];
    FILE *plain;
    pid_t child;
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    umask(0);
    CHECK_INT(ln_net_listen(address, NULL, false, &listener, &error), LINNET_OK);
    CHECK(stat(path, &file) == 0 && (file.st_mode & 07777) == 0600);
    CHECK_INT(ln_net_listen(address, NULL, false, &second, &error), LINNET_UNREACHABLE);
    CHECK(strstr(error.hint, "another process listens at this address") != NULL);
    ln_net_listener_free(listener);
    CHECK(stat(path, &file) < 0);
    /* A killed server leaves its socket file. */
    child = fork();
    if (child == 0) _exit(ln_net_listen(address, NULL, false, &listener, &error));
    waitpid(child, NULL, 0);
    CHECK(stat(path, &file) == 0);
    CHECK_INT(ln_net_listen(address, NULL, false, &listener, &error), LINNET_OK);
    /* A file that somebody else has put there stays. */
    unlink(path);
    plain = fopen(path, "w");
    fclose(plain);
    ln_net_listener_free(listener);
    CHECK(stat(path, &file) == 0);
    CHECK_INT(ln_net_listen(address, NULL, false, &listener, &error), LINNET_UNREACHABLE);
    CHECK(strstr(error.what, "not a socket") != NULL);
    CHECK(stat(path, &file) == 0 && S_ISREG(file.st_mode));
    unlink(path);
}

/* ---- connections that end at any moment -------------------------------------------------------------------------- */

/* Returns the bytes of two control frames and a message. */
static size_t said(unsigned char *bytes, size_t most) {
    end self;
    ln_net_header beat = {.type = LN_SYNC_HEARTBEAT}, push = {.type = LN_SYNC_PUSH};
    ln_net_slice slices[16];
    size_t size = 0;
    int count;
    end_init(&self, 0, LN_NET_CHUNK_MIN);
    CHECK(ln_net_stream_control(self.stream, &beat, "0123456789abcdef0123456789abcdef", 32));
    CHECK(ln_net_stream_bulk(self.stream, &push, "message", 7, 0));
    while ((count = ln_net_stream_pending(self.stream, slices, 16)) > 0)
        for (int i = 0; i < count; i++) {
            CHECK(size + slices[i].size <= most);
            memcpy(bytes + size, slices[i].data, slices[i].size);
            size += slices[i].size;
            ln_net_stream_sent(self.stream, slices[i].size);
            break;
        }
    end_free(&self);
    return size;
}

/* Connects a plain socket to a path. */
static int dial(const char *path) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(place.sun_path, sizeof place.sun_path, "%s", path);
    CHECK_INT(connect(fd, (struct sockaddr *)&place, sizeof place), 0);
    return fd;
}

/* Cuts the bytes at every position: complete frames arrive, and the end is noticed. If the rest follows, everything
 * arrives. */
static void splits(void) {
    unsigned char bytes[1024];
    size_t size = said(bytes, sizeof bytes);
    ln_net_listener *listener;
    linnet_error error;
    char address[128], path[100];
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    CHECK_INT(ln_net_listen(address, NULL, false, &listener, &error), LINNET_OK);
    CHECK(size == 64 + 32 + 64 + 7);
    for (size_t cut = 0; cut <= size; cut++)
        for (int whole = 0; whole < 2; whole++) {
            end server;
            int fd = dial(path);
            end_init(&server, 100, LN_NET_CHUNK_MIN);
            CHECK_INT(ln_net_accept(listener, &server.transport, &error), LINNET_OK);
            if (cut) CHECK(send(fd, bytes, cut, MSG_NOSIGNAL) == (ssize_t)cut);
            end_turn(&server, LN_NET_TURN);
            CHECK(!end_gone(&server));
            if (whole) CHECK(send(fd, bytes + cut, size - cut, MSG_NOSIGNAL) == (ssize_t)(size - cut));
            close(fd);
            for (int i = 0; i < 4 && !end_gone(&server); i++) end_turn(&server, LN_NET_TURN);
            CHECK_INT(server.flow, LN_NET_ENDED);
            CHECK_INT(server.controls, whole || cut >= 96);
            CHECK_INT(server.messages, whole || cut == size);
            end_free(&server);
        }
    ln_net_listener_free(listener);
}

/* One end disappears while the other is sending a lot. */
static void deserted(const char *address) {
    end ends[2];
    linnet_error error;
    static unsigned char data[8 << 20];
    ln_net_header push = {.type = LN_SYNC_PUSH};
    for (int i = 0; i < 2; i++) end_init(&ends[i], sizeof data, LN_NET_CHUNK);
    CHECK_INT(ends_connect(ends, address, NULL, NULL, &error), LINNET_OK);
    CHECK(ln_net_stream_bulk(ends[0].stream, &push, data, sizeof data, 0));
    while (ends[0].transport && !end_gone(&ends[0])) {
        uint64_t received, sent;
        ln_net_transport_counts(ends[1].transport, &received, &sent);
        if (received > 3 << 20) break;
        ends_step(ends, 2, 100000, 100);
    }
    ln_net_transport_free(ends[1].transport);
    ends[1].transport = NULL;
    for (int i = 0; i < 50 && !end_gone(&ends[0]); i++) ends_step(ends, 1, LN_NET_TURN, 100);
    CHECK(end_gone(&ends[0]));
    if (ends[0].flow == LN_NET_BROKEN) CHECK_INT(ends[0].error.code, LINNET_CONNECTION_LOST);
    for (int i = 0; i < 2; i++) end_free(&ends[i]);
}

/* The refusal arrives although its sender closes with bytes unread. */
static void refusal(const char *address) {
    end ends[2];
    linnet_error error;
    static unsigned char data[1 << 20];
    ln_net_header push = {.type = LN_SYNC_PUSH};
    end_init(&ends[0], 0, LN_NET_CHUNK);
    end_init(&ends[1], 10, LN_NET_CHUNK); /* the inbox is too small: place() refuses */
    CHECK_INT(ends_connect(ends, address, NULL, NULL, &error), LINNET_OK);
    CHECK(ln_net_stream_bulk(ends[0].stream, &push, data, sizeof data, 0));
    for (int i = 0; i < 100 && !end_gone(&ends[1]); i++) ends_step(ends, 2, LN_NET_TURN, 100);
    CHECK_INT(ends[1].flow, LN_NET_BROKEN);
    CHECK_INT(ends[1].error.code, LINNET_PROTOCOL_ERROR);
    CHECK_INT(ln_net_transport_send(ends[1].transport, ends[1].stream, LN_NET_TURN, &error), LN_NET_FLOWS);
    ln_net_transport_free(ends[1].transport);
    ends[1].transport = NULL;
    for (int i = 0; i < 50 && !end_gone(&ends[0]); i++) {
        ends[0].flow = ln_net_transport_receive(ends[0].transport, ends[0].stream, LN_NET_TURN, &error);
        poll(NULL, 0, 1);
    }
    CHECK_INT(ends[0].controls, 1); /* REFUSE */
    for (int i = 0; i < 2; i++) end_free(&ends[i]);
}

/* Without descriptors, a new peer is turned away at once. When there are some again, the next peer is served. */
static void turned_away(void) {
    struct rlimit limit, low;
    ln_net_listener *listener;
    ln_net_transport *transport;
    linnet_error error;
    char byte, address[128], path[100];
    int fd;
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    CHECK_INT(ln_net_listen(address, NULL, false, &listener, &error), LINNET_OK);
    fd = dial(path);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)fd + 1;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &low), 0);
    CHECK_INT(ln_net_accept(listener, &transport, &error), LINNET_OUT_OF_MEMORY);
    CHECK(transport == NULL && strstr(error.hint, "ulimit -n") != NULL);
    CHECK_INT(recv(fd, &byte, 1, 0), 0);
    CHECK_INT(ln_net_accept(listener, &transport, &error), LINNET_OK);
    CHECK(transport == NULL);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(fd);
    fd = dial(path);
    CHECK_INT(ln_net_accept(listener, &transport, &error), LINNET_OK);
    CHECK(transport != NULL);
    ln_net_transport_free(transport);
    close(fd);
    ln_net_listener_free(listener);
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    addresses();
    nobody();
    paths();
    splits();
    traffic();
    for (int i = 0; i < 6; i++) {
        deserted(place(i));
        refusal(place(i));
    }
    turned_away();
    CHECK_INT(rmdir(folder), 0); /* no socket file is left */
    return check_end("test_sync_transport");
}
