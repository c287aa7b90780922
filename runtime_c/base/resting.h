/* resting.h - when a thread pool leaves its workers asleep because other processes use the cores. It is an account of
 * time, without a clock of its own, so that a test can drive it. */
#ifndef LN_BASE_RESTING_H
#define LN_BASE_RESTING_H

#include <stdint.h>

/* The account of a pool: what its parallel calls gained, minus what they lost, since it last rested. All times are in
 * nanoseconds. Zeroed memory is a new account. */
typedef struct ln_resting {
    int64_t balance;
    uint64_t until; /* the pool rests until then */
    uint32_t doublings;
} ln_resting;

/* Notes that the caller would take `ns` for a call without workers. *alone is the least of the recent calls: it follows
 * a shorter time at once and a longer one slowly, because a thread that lost its core says nothing about the work. 0:
 * no call yet. */
void ln_resting_expect(uint32_t *alone, uint64_t ns);

/* Enters a parallel call that ended at `now`. It took `took`; the caller without workers would have taken `alone`. */
void ln_resting_account(ln_resting *r, uint64_t alone, uint64_t took, uint64_t now);

#endif
