/* posix_host.c - the monotonic clock and the kernel's random numbers, for servers and workers with sockets. */
#define _POSIX_C_SOURCE 200809L
#include "sync/common/posix_host.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t monotonic(void *context) {
    struct timespec time;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Reads random bytes from the kernel. Without /dev/urandom (in a bare chroot) it derives them from the time and the
 * process number; nonces are then distinct but predictable. */
static void random_bytes(void *context, void *bytes, size_t size) {
    FILE *file = fopen("/dev/urandom", "rb");
    const size_t got = file ? fread(bytes, 1, size, file) : 0;
    uint64_t seed = monotonic(context) ^ (uint64_t)getpid() << 32;
    if (file) fclose(file);
    for (size_t i = got; i < size; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)bytes)[i] = (unsigned char)(seed >> 56);
    }
}

ln_sync_host ln_sync_posix_host(void) { return (ln_sync_host){.clock = monotonic, .random = random_bytes}; }
