/* share.c - shares the work items of a step among threads. Each thread begins with a contiguous range of the items,
 * which is the same in every run, so that it finds what it wrote in the step before in its own cache. A thread that has
 * finished its range takes pieces from the ends of the others' ranges. */
#include "run/share.h"

#include "base/platform_threads.h"

enum {
    MOST_SHARED = 32, /* with more threads, no thread takes pieces of others, because a single slow thread then delays
                         the step little */
    LINE = 64
};

/* The pieces of a thread that nobody has taken yet. The lower 16 bits are the number of the first piece, the upper 16
 * bits the number after the last one. */
typedef struct range {
    _Alignas(LINE) atomic_uint pieces;
} range;

typedef struct sharing {
    const ln_resolved_step *resolved;
    int phase, count;
    int64_t pieces; /* number of pieces of all threads */
    atomic_int status;
    uint32_t own; /* the share of all pieces that the calling thread has run, in 1/65536 */
    range *ranges;
} sharing;

/* Takes half of the pieces that are left in a range: the first ones if the thread is the owner, otherwise the last
 * ones. So a range needs few calls of the kernel, and the last calls are short. Returns the number of pieces. */
static unsigned take(range *r, bool owner, unsigned *first) {
    unsigned old = atomic_load_explicit(&r->pieces, memory_order_relaxed);
    for (;;) {
        const unsigned begin = old & 0xFFFF, end = old >> 16, left = end - begin;
        if (left == 0) return 0;
        const unsigned n = left / 2 + (left & 1 & (unsigned)(owner || left == 1));
        const unsigned rest = owner ? (end << 16 | (begin + n)) : ((end - n) << 16 | begin);
        *first = owner ? begin : end - n;
        if (atomic_compare_exchange_weak(&r->pieces, &old, rest)) return n;
    }
}

static void run_items(sharing *s, int64_t first, int64_t last, int thread) {
    const ln_step *step = s->resolved->step;
    const int64_t work = step->call.work[s->phase > 0], each = work / s->pieces, rest = work % s->pieces;
    const int64_t begin = first * each + ln_min(first, rest), end = last * each + ln_min(last, rest);
    const linnet_status status =
        step->kernel->code->run(&step->call, &s->resolved->buffers, s->phase, begin, end, thread);
    if (status != LINNET_OK) atomic_store(&s->status, (int)status);
}

static void run_part(void *argument, int index) {
    sharing *s = argument;
    if (index == LN_ALL_PARTS || s->ranges == NULL) {
        const bool all = index == LN_ALL_PARTS;
        run_items(s, all ? 0 : index, all ? s->pieces : index + 1, all ? 0 : index);
        return;
    }
    int64_t done = 0;
    unsigned first = 0, n;
    for (int k = 0; k < s->count; ++k) {
        range *r = &s->ranges[(index + k) % s->count];
        while ((n = take(r, k == 0, &first)) > 0) {
            run_items(s, first, first + n, index);
            done += n;
        }
    }
    if (index == 0) s->own = (uint32_t)((done << 16) / s->pieces);
}

linnet_status ln_run_parallel(linnet_session *session, ln_resolved_step *resolved, int phase, int count) {
    range ranges[MOST_SHARED];
    const ln_step *step = resolved->step;
    const int per_thread = step->pieces[phase > 0];
    sharing s = {.resolved = resolved, .phase = phase, .count = count, .pieces = count};
    if (per_thread > 1 && count <= MOST_SHARED) {
        s.pieces = ln_min(step->call.work[phase > 0], (int64_t)per_thread * count);
        s.ranges = ranges;
        for (int i = 0; i < count; ++i) {
            const int64_t begin = i * s.pieces / count, end = (i + 1) * s.pieces / count;
            atomic_init(&ranges[i].pieces, (unsigned)(end << 16 | begin));
        }
    }
    if (session->parallel_for != NULL)
        session->parallel_for(session->parallel_context, run_part, &s, count);
    else
        ln_threads_run(session->threads, run_part, &s, count, &resolved->alone[phase > 0], &s.own);
    return (linnet_status)atomic_load(&s.status);
}
