/* test_sync_shm.c - shared memory with a hostile or dead peer: impossible indices, bytes that change, memory that is
 * not sealed or has the wrong size, a bell that rings endlessly. Also tests that the bell does not ring if nobody
 * sleeps. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "sync_ends.h"
#include "net/stream_send.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"

#if defined(__linux__)
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[64] = "/tmp/ln-sync-XXXXXX", path[100], address[128];

/* Sends `greeting` and the descriptor `memory` (-1: none) through a socket. */
static void pass(int fd, int memory, const void *greeting, size_t size) {
    struct iovec part = {(void *)(uintptr_t)greeting, size};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (memory >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof memory);
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &memory, sizeof memory);
    }
    CHECK(sendmsg(fd, &message, 0) == (ssize_t)size);
}

/* Receives the memory that a server hands over. */
static int taken(int fd, unsigned char greeting[16]) {
    struct iovec part = {greeting, 16};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int memory = -1;
    CHECK_INT(recvmsg(fd, &message, 0), 16);
    if (CMSG_FIRSTHDR(&message)) memcpy(&memory, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof memory);
    return memory;
}

typedef struct hostile {
    ln_net_listener *listener;
    end server;
    int fd;
    size_t size;
    unsigned char *shared;
} hostile;

/* Connects a client that can change the shared memory freely. */
static void enter(hostile *self) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    unsigned char greeting[16];
    linnet_error error;
    struct stat file;
    int memory;
    CHECK_INT(ln_net_listen(address, NULL, false, &self->listener, &error), LINNET_OK);
    snprintf(place.sun_path, sizeof place.sun_path, "%s", path);
    self->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_INT(connect(self->fd, (struct sockaddr *)&place, sizeof place), 0);
    end_init(&self->server, 100, LN_NET_CHUNK);
    CHECK_INT(ln_net_accept(self->listener, &self->server.transport, &error), LINNET_OK);
    end_turn(&self->server, LN_NET_TURN);
    memory = taken(self->fd, greeting);
    CHECK(memory >= 0 && fstat(memory, &file) == 0);
    self->size = (size_t)file.st_size;
    CHECK(ftruncate(memory, 0) < 0); /* sealed */
    CHECK(ftruncate(memory, 1 << 30) < 0);
    CHECK(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) < 0);
    self->shared = mmap(NULL, self->size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    CHECK(self->shared != MAP_FAILED);
    close(memory);
}

static void leave(hostile *self) {
    munmap(self->shared, self->size);
    close(self->fd);
    end_free(&self->server);
    ln_net_listener_free(self->listener);
}

enum { HEAD = 0, TAIL = 64, OTHER = 128 }; /* positions in the client's ring; OTHER: the server's ring */

static void set(hostile *self, size_t at, uint64_t value) { memcpy(self->shared + at, &value, sizeof value); }

static void indices(void) {
    static const uint64_t heads[] = {(1 << 20) + 1, UINT64_MAX - (2 << 20), UINT64_MAX / 2, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        hostile self;
        enter(&self);
        set(&self, HEAD, heads[i]);
        end_turn(&self.server, LN_NET_TURN);
        CHECK_INT(self.server.flow, LN_NET_BROKEN);
        CHECK_INT(self.server.error.code, LINNET_PROTOCOL_ERROR);
        leave(&self);
        /* The read index is ahead of the write index. */
        enter(&self);
        set(&self, OTHER + TAIL, heads[i]);
        CHECK(ln_net_stream_control(self.server.stream, &(ln_net_header){.type = LN_SYNC_BYE}, NULL, 0));
        end_turn(&self.server, LN_NET_TURN);
        CHECK_INT(self.server.flow, LN_NET_BROKEN);
        leave(&self);
    }
}

/* Writes random numbers to every 8-byte word of the control page, for many rounds: no crash, no endless loop. */
static void noise(void) {
    uint64_t seed = 5;
    for (int round = 0; round < 200; round++) {
        hostile self;
        enter(&self);
        for (int turn = 0; turn < 5; turn++) {
            for (size_t at = 0; at < 4096; at += 8) set(&self, at, check_random(&seed) >> (check_random(&seed) % 64));
            for (size_t at = 4096; at < self.size; at += 4096) set(&self, at, check_random(&seed));
            ln_net_stream_control(self.server.stream, &(ln_net_header){.type = LN_SYNC_BYE}, NULL, 0);
            end_turn(&self.server, LN_NET_TURN);
        }
        CHECK_INT(self.server.messages, 0);
        leave(&self);
    }
}

/* The bell rings without end: each turn still takes a bounded time, and the server notices when the connection ends. */
static void bells(void) {
    hostile self;
    char many[4096] = {0};
    enter(&self);
    for (int i = 0; i < 1000; i++) {
        (void)!send(self.fd, many, sizeof many, MSG_DONTWAIT | MSG_NOSIGNAL);
        end_turn(&self.server, LN_NET_TURN);
        CHECK_INT(self.server.flow, LN_NET_FLOWS);
    }
    shutdown(self.fd, SHUT_WR);
    for (int i = 0; i < 10000 && !end_gone(&self.server); i++) end_turn(&self.server, LN_NET_TURN);
    CHECK_INT(self.server.flow, LN_NET_ENDED);
    leave(&self);
}

/* If a server hands over anything else, the client refuses it and closes the descriptors. */
static void servers(void) {
    enum { SIZE = 4096 + 2 * (64 << 10) };
    for (int kind = 0; kind < 8; kind++) {
        struct {
            char magic[8];
            uint64_t ring;
        } greeting = {"LNSHM\1\0", 64 << 10};
        struct sockaddr_un place = {.sun_family = AF_UNIX};
        int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd, memory = memfd_create("test", MFD_ALLOW_SEALING);
        end client;
        linnet_error error;
        end_init(&client, 100, LN_NET_CHUNK);
        snprintf(place.sun_path, sizeof place.sun_path, "%s", path);
        CHECK(bind(listener, (struct sockaddr *)&place, sizeof place) == 0 && listen(listener, 1) == 0);
        CHECK_INT(ln_net_connect(address, NULL, false, &client.transport, &error), LINNET_OK);
        fd = accept(listener, NULL, NULL);
        CHECK_INT(ftruncate(memory, kind == 1 ? SIZE - 1 : SIZE), 0);
        if (kind != 2) CHECK_INT(fcntl(memory, F_ADD_SEALS, kind == 3 ? F_SEAL_GROW : F_SEAL_GROW | F_SEAL_SHRINK), 0);
        if (kind == 4) greeting.ring = 3 << 10;
        if (kind == 5) greeting.ring = (uint64_t)1 << 63;
        if (kind == 6) greeting.magic[0] = 'X';
        if (kind == 7) {
            close(memory);
            memory = open("/dev/zero", O_RDWR);
        }
        pass(fd, kind == 0 ? -1 : memory, &greeting, sizeof greeting);
        for (int i = 0; i < 20 && !end_gone(&client); i++) ends_step(&client, 1, LN_NET_TURN, 50);
        CHECK_INT(client.flow, LN_NET_BROKEN);
        CHECK_INT(client.error.code, LINNET_PROTOCOL_ERROR);
        end_free(&client);
        close(memory);
        close(fd);
        close(listener);
        unlink(path);
    }
}

/* The bell does not ring while the reader is awake, and rings once when it sleeps. */
static void quiet(void) {
    end ends[2];
    linnet_error error;
    int waiting;
    char payload[32] = {0};
    for (int i = 0; i < 2; i++) end_init(&ends[i], 100, LN_NET_CHUNK);
    CHECK_INT(ends_connect(ends, address, NULL, NULL, &error), LINNET_OK);
    for (int i = 0; i < 20; i++) ends_step(ends, 2, LN_NET_TURN, 10);
    for (int i = 0; i < 100; i++) { /* the reader sleeps */
        CHECK(ln_net_stream_control(ends[0].stream, &(ln_net_header){.type = LN_SYNC_HEARTBEAT}, payload, 32));
        CHECK_INT(ln_net_transport_send(ends[0].transport, ends[0].stream, LN_NET_TURN, &error), LN_NET_FLOWS);
    }
    CHECK_INT(ioctl(ln_net_transport_fd(ends[1].transport), FIONREAD, &waiting), 0);
    CHECK_INT(waiting, 1);
    CHECK_INT(ln_net_transport_receive(ends[1].transport, ends[1].stream, 100, &error),
              LN_NET_FLOWS); /* the reader is awake */
    CHECK(ln_net_transport_wants(ends[1].transport, ends[1].stream) & LN_NET_NOW);
    for (int i = 0; i < 100; i++) {
        CHECK(ln_net_stream_control(ends[0].stream, &(ln_net_header){.type = LN_SYNC_HEARTBEAT}, payload, 32));
        CHECK_INT(ln_net_transport_send(ends[0].transport, ends[0].stream, LN_NET_TURN, &error), LN_NET_FLOWS);
    }
    CHECK_INT(ioctl(ln_net_transport_fd(ends[1].transport), FIONREAD, &waiting), 0);
    CHECK_INT(waiting, 1);
    for (int i = 0; i < 20; i++) ends_step(ends, 2, LN_NET_TURN, 10);
    CHECK_INT(ends[1].controls, 200);
    for (int i = 0; i < 2; i++) end_free(&ends[i]);
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/memory", folder);
    snprintf(address, sizeof address, "shm:%s", path);
    indices();
    noise();
    bells();
    servers();
    quiet();
    CHECK_INT(rmdir(folder), 0);
    return check_end("test_sync_shm");
}
#else
int main(void) {
    ln_net_listener *listener;
    linnet_error error;
    CHECK_INT(ln_net_listen("shm:/tmp/none", NULL, false, &listener, &error), LINNET_UNSUPPORTED);
    return check_end("test_sync_shm");
}
#endif
