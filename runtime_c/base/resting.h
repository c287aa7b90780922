/* resting.h - decides when a thread pool rests: it leaves its workers asleep because other processes use the cores. The
 * decision is an account of gained and lost time. It has no clock of its own, so that a test can drive it. */
#ifndef LN_BASE_RESTING_H
#define LN_BASE_RESTING_H

#include <stdint.h>

/* The account of a pool. All times are in nanoseconds. Zeroed memory is a new account. */
typedef struct ln_resting {
    int64_t balance;    /* time that parallel calls gained, minus the time that they lost, since the pool last rested */
    uint64_t until;     /* the pool rests until this time */
    uint32_t doublings; /* how often the length of a rest was doubled */
} ln_resting;

/* Updates *alone, an estimate of how long the caller takes for a call without workers, by a measured time of `ns`. The
 * estimate follows a shorter time at once and a longer time slowly, because a thread that lost its core for a while
 * says nothing about the work. *alone is 0 before the first call. */
void ln_resting_expect(uint32_t *alone, uint64_t ns);

/* Adds a parallel call to the account. The call ended at `now` and took `took` ns; without workers, the caller would
 * have taken `alone` ns. */
void ln_resting_account(ln_resting *r, uint64_t alone, uint64_t took, uint64_t now);

#endif
