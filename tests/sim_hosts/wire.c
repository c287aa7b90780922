/* wire.c - a medium over Unix sockets that has faults. The linker puts it in the place of the socket's own medium
 * (tests.cmake), so that links, queues and hosts run as they are. */
#define _POSIX_C_SOURCE 200809L
#include "sim.h"

#include "net/error.h"
#include "net/transport_connect.h"
#include "net/transport_socket.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

typedef struct faulty {
    ln_net_transport transport; /* first: transports are freed as what they are */
    int host;                   /* to which this side has connected; -1: it has accepted */
    bool cut, lost, failed;     /* lost: something went nowhere */
    uint64_t seed, drawn, held_until;
} faulty;

static wire_plan plan;
static atomic_bool armed, healed, silent[HOSTS];
static _Atomic uint64_t transfers, connections, counts[KINDS];

uint64_t draw(uint64_t seed, uint64_t n) {
    uint64_t z = seed * 0xd1342543de82ef95ull + (n + 1) * 0x9e3779b97f4a7c15ull; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

void wire_begin(const wire_plan *next) {
    plan = *next;
    atomic_store(&armed, false);
    atomic_store(&healed, false);
    atomic_store(&connections, 0);
    atomic_store(&transfers, 0);
    for (int i = 0; i < HOSTS; i++) atomic_store(&silent[i], false);
}

void wire_arm(void) { atomic_store(&armed, true); }

void wire_heal(void) {
    atomic_store(&armed, false);
    atomic_store(&healed, true);
}

uint64_t wire_count(fault_kind kind) { return atomic_load(&counts[kind]); }
uint64_t wire_transfers(void) { return atomic_load(&transfers); }

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t next(faulty *f) { return draw(f->seed, f->drawn++); }
static bool chance(faulty *f, double p) { return (double)(next(f) >> 11) * 0x1p-53 < p; }

/* Counts a transfer. Returns the fault that hits it, or KINDS. */
static fault_kind counted(uint64_t *random) {
    if (!atomic_load(&armed)) return KINDS;
    const uint64_t number = atomic_fetch_add(&transfers, 1);
    for (int i = 0; i < plan.faults; i++)
        if (plan.at[i] == number) {
            *random = draw(plan.seed + 1, number);
            atomic_fetch_add(&counts[plan.kind[i]], 1);
            if (plan.kind[i] == STOP) wire_stops(*random);
            if (plan.kind[i] == SILENCE) atomic_store(&silent[*random % HOSTS], true);
            return plan.kind[i];
        }
    return KINDS;
}

static void cut(faulty *f, bool failed) {
    f->cut = true, f->failed = failed;
    shutdown(f->transport.fd, SHUT_RDWR);
}

static bool is_silent(const faulty *f) {
    return f->host >= 0 && atomic_load(&silent[f->host]) && !atomic_load(&healed);
}

/* What a connection says that is cut, or has lost something. */
static long ended(const faulty *f, linnet_error *error) {
    if (!f->failed) return LN_NET_END_OF_FILE;
    ln_sync_fail(error, LINNET_CONNECTION_LOST, "the connection failed while receiving: it was cut");
    ln_sync_at(error, f->transport.peer);
    return LN_NET_FAILED;
}

static long lose(faulty *f, linnet_error *error) {
    char lost[4096];
    const long got = ln_net_socket_medium.read(&f->transport, lost, sizeof lost, error);
    f->lost |= got > 0;
    return got > 0 ? LN_NET_WOULD_BLOCK : got;
}

static bool is_late(faulty *f) {
    const struct timespec moment = {0, 20000};
    if (f->held_until == 0 || atomic_load(&healed)) return false;
    if (now_ns() >= f->held_until) f->held_until = 0;
    if (f->held_until != 0) nanosleep(&moment, NULL); /* poll sees what has arrived */
    return f->held_until != 0;
}

static long faulty_read(ln_net_transport *transport, void *data, size_t size, linnet_error *error) {
    faulty *f = (faulty *)transport;
    uint64_t random = 0;
    if (f->cut) return ended(f, error);
    if (is_silent(f)) return lose(f, error);
    if (f->lost) return ended(f, error);
    if (is_late(f)) return LN_NET_WOULD_BLOCK;
    if (chance(f, plan.split)) size = 1 + (size_t)(next(f) % size);
    const long got = ln_net_socket_medium.read(transport, data, size, error);
    if (got <= 0) return got;
    if (chance(f, plan.delay)) f->held_until = now_ns() + 1000 * (next(f) % (uint64_t)plan.most_us);
    if (counted(&random) != CUT) return got;
    cut(f, random % 2);
    const long left = (long)(random / 2 % (uint64_t)(got + 1)); /* the end of what has arrived is lost */
    return left > 0 ? left : ended(f, error);
}

static size_t shorten(ln_net_slice *out, const ln_net_slice *slices, int count, int *kept, uint64_t random) {
    size_t all = 0, size = 0;
    for (int i = 0; i < count; i++) all += slices[i].size;
    const size_t most = 1 + (size_t)(random % (all > 0 ? all : 1));
    for (*kept = 0; *kept < count && size < most; ++*kept) {
        out[*kept] = slices[*kept];
        if (out[*kept].size > most - size) out[*kept].size = most - size;
        size += out[*kept].size;
    }
    return size;
}

static long faulty_write(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error) {
    faulty *f = (faulty *)transport;
    ln_net_slice part[LN_NET_SLICES];
    uint64_t random = 0;
    if (is_silent(f)) { /* the system takes it, and it goes nowhere */
        size_t size = 0;
        for (int i = 0; i < count; i++) size += slices[i].size;
        f->lost = true;
        return (long)size;
    }
    if (f->cut || f->lost) return ended(f, error);
    const fault_kind fault = counted(&random);
    int kept = count;
    if (fault != KINDS || chance(f, plan.split)) {
        shorten(part, slices, count, &kept, fault != KINDS ? random : next(f));
        slices = part;
    }
    const long put = ln_net_socket_medium.write(transport, slices, kept, error);
    if (fault == CUT) cut(f, random / 2 % 2);
    return put;
}

static void closed(ln_net_transport *transport) { ln_net_socket_medium.close(transport); }

static const ln_net_medium medium = {.read = faulty_read, .write = faulty_write, .close = closed};

ln_net_transport *__real_ln_net_transport_new(int fd, const ln_net_security *security, bool server);
ln_net_transport *__wrap_ln_net_transport_new(int fd, const ln_net_security *security, bool server);
ln_net_transport *__wrap_ln_net_transport_new(int fd, const ln_net_security *security, bool server) {
    ln_net_transport *made = __real_ln_net_transport_new(fd, security, server);
    faulty *f = made != NULL ? realloc(made, sizeof *f) : NULL;
    if (f == NULL) return made;
    const uint64_t number = atomic_fetch_add(&connections, 1);
    *f = (faulty){.transport = f->transport, .host = -1, .seed = draw(plan.seed, number) | 1};
    f->transport.medium = &medium;
    return &f->transport;
}

linnet_status __real_ln_net_connect(const char *address, const ln_net_security *security, bool insecure,
                                    ln_net_transport **out, linnet_error *error);
linnet_status __wrap_ln_net_connect(const char *address, const ln_net_security *security, bool insecure,
                                    ln_net_transport **out, linnet_error *error);
/* A fault that hits a connection before it is made: nobody answers there. */
linnet_status __wrap_ln_net_connect(const char *address, const ln_net_security *security, bool insecure,
                                    ln_net_transport **out, linnet_error *error) {
    uint64_t random = 0;
    if (counted(&random) == KINDS) {
        const linnet_status status = __real_ln_net_connect(address, security, insecure, out, error);
        if (status == LINNET_OK) ((faulty *)*out)->host = address[strlen(address) - 1] - '0';
        return status;
    }
    *out = NULL;
    ln_sync_fail(error, LINNET_UNREACHABLE, "cannot connect: the network is cut");
    return ln_sync_at(error, address);
}
