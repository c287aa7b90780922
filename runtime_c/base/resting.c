/* resting.c - when a thread pool leaves its workers asleep: the limits, and the account of gains and losses. */
#include "base/resting.h"

/* The time that a call loses is subtracted from the time that earlier calls gained. So another process that runs only
 * now and then does not make the pool rest. TRIAL_NS is the loss after which a pool rests. A worker wakes up in less
 * than this time, so the slow first call after a rest does not make the pool rest again. MOST_GAINED_NS is the most
 * gained time that counts against later losses. The first rest is as long as the loss, so that a single loss costs at
 * most twice its time. While trial after trial loses, the rests grow to 64 times the loss; a trial that gains ENOUGH_NS
 * makes them short again. tests/bench_busy.py measures this. */
enum { TRIAL_NS = 400000, ENOUGH_NS = 400000, MOST_GAINED_NS = 3000000, MOST_DOUBLINGS = 6, FORGET = 16 };

void ln_resting_expect(uint32_t *alone, uint64_t ns) {
    if (ns > UINT32_MAX) ns = UINT32_MAX;
    *alone = *alone == 0 || ns < *alone ? (uint32_t)ns : *alone + ((uint32_t)ns - *alone) / FORGET;
}

void ln_resting_account(ln_resting *r, uint64_t alone, uint64_t took, uint64_t now) {
    r->balance += (int64_t)alone - (int64_t)took;
    if (r->balance > MOST_GAINED_NS) r->balance = MOST_GAINED_NS;
    if (r->balance >= ENOUGH_NS) {
        r->doublings = 0;
    } else if (r->balance < -TRIAL_NS) {
        r->until = now + ((uint64_t)-r->balance << r->doublings);
        if (r->doublings < MOST_DOUBLINGS) ++r->doublings;
        r->balance = 0;
    }
}
