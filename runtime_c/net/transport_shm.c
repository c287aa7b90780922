/* transport_shm.c - shared memory as a medium: one ring per direction in a sealed memfd, which the server hands over
 * through a Unix socket. The socket is the doorbell: it only wakes a sleeping peer, and tells when the peer has closed.
 * The peer is not trusted. Its indices are checked, and its bytes are copied before they are parsed. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_shm.h"

#include "net/error.h"
#include "net/transport_address.h"
#include "net/transport_medium.h"
#include "net/transport_socket.h"
#include "net/transport_tls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "indices that two processes share must not need a lock");

enum {
    CONTROL = 4096,      /* bytes before the rings */
    RING = 1 << 20,      /* bytes of a ring; pages are allocated when they are first written */
    RING_MIN = 64 << 10, /* smallest ring that a client accepts from a server */
    RING_MAX = 64 << 20,
    PIECE = 64 << 10 /* a sleeping reader is woken after this many bytes, while more bytes are being written */
};
enum { FOR_BYTES = 1, FOR_ROOM = 2 }; /* reason why a side sleeps: it waits for bytes, or for space */

/* The beginning of the memory. [0]: client to server, [1]: server to client. Indices count bytes and never wrap
 * around. */
typedef struct control {
    struct {
        _Alignas(64) _Atomic uint64_t head; /* bytes written, by the writer */
        _Alignas(64) _Atomic uint64_t tail; /* bytes read, by the reader */
    } rings[2];
    struct {
        _Alignas(64) _Atomic uint32_t reasons;
    } sleeps[2]; /* reasons why the client [0] or the server [1] sleeps */
} control;
_Static_assert(sizeof(control) <= CONTROL, "the indices fit in their page");

struct ln_net_shm {
    control *shared;
    unsigned char *in, *out;
    uint64_t ring;              /* size in bytes, a power of two */
    uint64_t in_tail, out_head; /* our own indices, which the peer cannot change */
    int reading, writing, self; /* indices of this side's rings, and of this side in `sleeps` */
    bool ended;
};

/* The message that comes with the memory's descriptor. */
typedef struct greeting {
    char magic[8];
    uint64_t ring;
} greeting;
static const char MAGIC[8] = "LNSHM\1\0";

static long failed(ln_net_transport *transport, const char *what, linnet_error *error) {
    ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "%s", what);
    ln_sync_at(error, transport->peer);
    return LN_NET_FAILED;
}

/* ---- the doorbell ------------------------------------------------------------------------------------------------ */

/* Wakes the peer if it sleeps for this reason. */
static void ring_bell(ln_net_transport *transport, uint32_t reason) {
    struct ln_net_shm *shm = transport->shm;
    _Atomic uint32_t *reasons = &shm->shared->sleeps[1 - shm->self].reasons;
    atomic_thread_fence(memory_order_seq_cst);
    if (!(atomic_load_explicit(reasons, memory_order_relaxed) & reason)) return;
    if (!(atomic_fetch_and(reasons, ~reason) & reason)) return;
    /* If this call would block, the socket already holds bytes that wake the peer. */
    (void)!send(transport->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Announces that this side is about to sleep. The caller must then check the ring once more. */
static void lie_down(ln_net_transport *transport, uint32_t reason) {
    struct ln_net_shm *shm = transport->shm;
    char rings[256];
    ssize_t got;
    do got = recv(transport->fd, rings, sizeof rings, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) shm->ended = true;
    atomic_fetch_or(&shm->shared->sleeps[shm->self].reasons, reason);
    atomic_thread_fence(memory_order_seq_cst);
}

static void get_up(struct ln_net_shm *shm, uint32_t reason) {
    _Atomic uint32_t *reasons = &shm->shared->sleeps[shm->self].reasons;
    if (atomic_load_explicit(reasons, memory_order_relaxed) & reason) atomic_fetch_and(reasons, ~reason);
}

/* ---- the medium -------------------------------------------------------------------------------------------------- */

static void take(struct ln_net_shm *shm, unsigned char *data, size_t size) {
    size_t at = (size_t)(shm->in_tail & (shm->ring - 1));
    size_t first = size < shm->ring - at ? size : (size_t)shm->ring - at;
    memcpy(data, shm->in + at, first);
    memcpy(data + first, shm->in, size - first);
    shm->in_tail += size;
    atomic_store_explicit(&shm->shared->rings[shm->reading].tail, shm->in_tail, memory_order_release);
}

static void put(struct ln_net_shm *shm, const unsigned char *data, size_t size) {
    size_t at = (size_t)(shm->out_head & (shm->ring - 1));
    size_t first = size < shm->ring - at ? size : (size_t)shm->ring - at;
    memcpy(shm->out + at, data, first);
    memcpy(shm->out, data + first, size - first);
    shm->out_head += size;
    atomic_store_explicit(&shm->shared->rings[shm->writing].head, shm->out_head, memory_order_release);
}

/* Counts the bytes that can be read. Returns false if the peer's index is impossible. */
static bool bytes(struct ln_net_shm *shm, uint64_t *count) {
    *count = atomic_load_explicit(&shm->shared->rings[shm->reading].head, memory_order_acquire) - shm->in_tail;
    return *count <= shm->ring;
}

static bool room(struct ln_net_shm *shm, uint64_t *count) {
    uint64_t used = shm->out_head - atomic_load_explicit(&shm->shared->rings[shm->writing].tail, memory_order_acquire);
    *count = shm->ring - used;
    return used <= shm->ring;
}

static long shm_read(ln_net_transport *transport, void *data, size_t size, linnet_error *error) {
    struct ln_net_shm *shm = transport->shm;
    uint64_t count;
    if (!bytes(shm, &count)) return failed(transport, "the peer's index in shared memory is out of range", error);
    if (!count) {
        lie_down(transport, FOR_BYTES);
        if (!bytes(shm, &count)) return failed(transport, "the peer's index in shared memory is out of range", error);
        if (!count) return shm->ended ? LN_NET_END_OF_FILE : LN_NET_WOULD_BLOCK;
    }
    get_up(shm, FOR_BYTES);
    if (size > count) size = (size_t)count;
    take(shm, data, size);
    /* Wakes a sleeping writer only when half the ring is free, not for every byte. */
    if (count - size <= shm->ring / 2) ring_bell(transport, FOR_ROOM);
    return (long)size;
}

static long shm_write(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error) {
    struct ln_net_shm *shm = transport->shm;
    uint64_t space;
    long written = 0;
    if (!room(shm, &space)) return failed(transport, "the peer's index in shared memory is out of range", error);
    if (!space) {
        lie_down(transport, FOR_ROOM);
        if (!room(shm, &space)) return failed(transport, "the peer's index in shared memory is out of range", error);
        if (!space) return shm->ended ? LN_NET_END_OF_FILE : LN_NET_WOULD_BLOCK;
    }
    get_up(shm, FOR_ROOM);
    for (int i = 0; i < count && space; i++) {
        const unsigned char *data = slices[i].data;
        for (size_t left = slices[i].size; left && space;) {
            size_t size = left < PIECE ? left : PIECE;
            if (size > space) size = (size_t)space;
            put(shm, data, size);
            data += size;
            left -= size;
            space -= size;
            written += (long)size;
            if (size == PIECE) ring_bell(transport, FOR_BYTES);
        }
    }
    ring_bell(transport, FOR_BYTES);
    return written;
}

static void shm_close(ln_net_transport *transport) {
    struct ln_net_shm *shm = transport->shm;
    munmap(shm->shared, CONTROL + 2 * (size_t)shm->ring);
    free(shm);
    transport->shm = NULL;
    ln_net_socket_medium.close(transport);
}

const ln_net_medium ln_net_shm_medium = {shm_read, shm_write, shm_close, false, NULL};

/* ---- handing over the memory ------------------------------------------------------------------------------------- */

/* Maps the memory and makes it the transport's medium. */
static bool adopt(ln_net_transport *transport, int memory, uint64_t ring) {
    struct ln_net_shm *shm = calloc(1, sizeof *shm);
    void *mapped = shm ? mmap(NULL, CONTROL + 2 * (size_t)ring, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) : NULL;
    if (!shm || mapped == MAP_FAILED) {
        free(shm);
        return false;
    }
    shm->shared = mapped;
    shm->ring = ring;
    shm->self = transport->server;
    shm->reading = transport->server ? 0 : 1;
    shm->writing = 1 - shm->reading;
    shm->in = (unsigned char *)mapped + CONTROL + (size_t)shm->reading * ring;
    shm->out = (unsigned char *)mapped + CONTROL + (size_t)shm->writing * ring;
    transport->shm = shm;
    transport->medium = &ln_net_shm_medium;
    transport->write_needs = LN_NET_READ;
    ln_net_stage_security(transport);
    return true;
}

static ln_net_flow no_memory(ln_net_transport *transport, linnet_error *error) {
    char text[96];
    ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot share memory: %s", ln_net_errno(errno, text, sizeof text));
    ln_sync_at(error, transport->peer);
    ln_sync_hint(error, "use unix:PATH");
    return LN_NET_BROKEN;
}

/* Space in a control message for one descriptor. */
typedef union passed {
    struct cmsghdr header; /* gives `room` the alignment of a header */
    char room[CMSG_SPACE(sizeof(int))];
} passed;

static ln_net_flow give(ln_net_transport *transport, linnet_error *error) {
    greeting greeting = {.ring = RING};
    struct iovec part = {&greeting, sizeof greeting};
    passed passed;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
    /* A system call, because older C libraries have no function for it. */
    int memory = (int)syscall(SYS_memfd_create, "linnet-sync", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ssize_t sent;
    memset(&passed, 0, sizeof passed);
    memcpy(greeting.magic, MAGIC, sizeof MAGIC);
    /* Seals the memory, so that neither side can shorten it while the other side uses it. */
    if (memory < 0 || ftruncate(memory, CONTROL + 2 * (off_t)RING) < 0 ||
        fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 || !adopt(transport, memory, RING)) {
        ln_net_flow flow = no_memory(transport, error);
        if (memory >= 0) close(memory);
        return flow;
    }
    CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
    CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
    CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof memory);
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &memory, sizeof memory);
    do sent = sendmsg(transport->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    close(memory);
    if (sent == (ssize_t)sizeof greeting) return LN_NET_FLOWS;
    ln_sync_fail(error, LINNET_CONNECTION_LOST, "the peer left before the memory was handed over");
    ln_sync_at(error, transport->peer);
    return LN_NET_BROKEN;
}

/* Checks that the memory is sealed and as large as the greeting says. Otherwise the server could shorten the memory and
 * crash this process. */
static bool sound(int memory, uint64_t ring) {
    struct stat file;
    int seals = fcntl(memory, F_GET_SEALS), need = F_SEAL_SHRINK | F_SEAL_GROW;
    return ring >= RING_MIN && ring <= RING_MAX && (ring & (ring - 1)) == 0 && seals >= 0 && (seals & need) == need &&
           fstat(memory, &file) == 0 && (uint64_t)file.st_size == CONTROL + 2 * ring;
}

static ln_net_flow take_over(ln_net_transport *transport, linnet_error *error) {
    greeting greeting;
    struct iovec part = {&greeting, sizeof greeting};
    passed passed;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed};
    struct cmsghdr *header;
    int memory = -1;
    bool fits;
    ssize_t got;
    do got = recvmsg(transport->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    transport->stage_needs = LN_NET_READ;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return LN_NET_BLOCKED;
    if (got <= 0) return LN_NET_ENDED;
    header = CMSG_FIRSTHDR(&message); /* the system closes descriptors that do not fit */
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof memory))
        memcpy(&memory, CMSG_DATA(header), sizeof memory);
    fits = got == (ssize_t)sizeof greeting && memory >= 0 && memcmp(greeting.magic, MAGIC, sizeof MAGIC) == 0 &&
           sound(memory, greeting.ring);
    if (!fits) {
        if (memory >= 0) close(memory);
        failed(transport, "the server did not hand over shared memory", error);
        ln_sync_hint(error, "does it listen at shm:PATH, not at unix:PATH, and run the same release of linnet?");
        return LN_NET_BROKEN;
    }
    fits = adopt(transport, memory, greeting.ring);
    if (!fits) no_memory(transport, error);
    close(memory);
    return fits ? LN_NET_FLOWS : LN_NET_BROKEN;
}

#else

static ln_net_flow lacking(ln_net_transport *transport, linnet_error *error) {
    ln_sync_fail(error, LINNET_UNSUPPORTED, "shared memory connections exist only on Linux");
    ln_sync_at(error, transport->peer);
    ln_sync_hint(error, "use unix:PATH");
    return LN_NET_BROKEN;
}
static ln_net_flow give(ln_net_transport *transport, linnet_error *error) { return lacking(transport, error); }
static ln_net_flow take_over(ln_net_transport *transport, linnet_error *error) { return lacking(transport, error); }

#endif

void ln_net_stage_after_socket(ln_net_transport *transport, bool shared_memory) {
    ln_net_stage_security(transport);
    if (shared_memory) transport->stage = transport->server ? give : take_over;
}
