/* clock.h - the monotonic clock, for all that waits and measures here. Include it after _POSIX_C_SOURCE is defined. */
#ifndef LN_REMOTE_CLOCK_H
#define LN_REMOTE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ln_remote_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline int64_t ln_remote_now_ms(void) { return (int64_t)(ln_remote_now_ns() / 1000000); }

#endif
