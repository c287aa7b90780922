/* planner.c - the memory planner: greedy orders, then a bounded seeded hill climb over the order of the buffers.
 * In every order, each buffer gets the best gap among the buffers in use at the same time. If there are many buffers, a
 * sweep over the steps gives each buffer its offset at its first step, before the orders are tried. */
#include "plan/graph/planner.h"

#include <stdlib.h>
#include <string.h>

enum {
    CLIMB_COMPARISONS = 6000000, /* about 15 ms; enough to converge for graphs of a few hundred buffers */
    MANY = 4096,                 /* from this number of buffers on, a sweep runs first, because the orders compare all
                                    pairs */
    MOST_COMPARISONS = 100000000 /* limit of the comparisons of all orders together */
};

typedef struct work {
    const ln_lifetime *buffers;
    int count;
    uint64_t *sizes;   /* rounded up */
    uint64_t *offsets; /* offsets in the order that is being tried */
    int32_t *order, *best_order;
    uint64_t *best_offsets;
    /* The buffers that already have an offset and overlap in time with the current one, sorted by offset. */
    int32_t *alive;
    int64_t comparisons, most; /* comparisons made so far, and their number at which an order is abandoned */
} work;

static bool overlap(const ln_lifetime *a, const ln_lifetime *b) { return a->first <= b->last && b->first <= a->last; }

/* Assigns offsets in the given order. Returns the bytes needed, or UINT64_MAX once they reach `limit`. */
static uint64_t assign(work *w, uint64_t limit) {
    uint64_t top = 0;
    for (int i = 0; i < w->count; ++i) {
        const int32_t b = w->order[i];
        const uint64_t size = w->sizes[b];
        int alive = 0;
        for (int j = 0; j < i; ++j) {
            const int32_t other = w->order[j];
            if (!overlap(&w->buffers[b], &w->buffers[other]) || w->sizes[other] == 0) continue;
            int at = alive++;
            for (; at > 0 && w->offsets[w->alive[at - 1]] > w->offsets[other]; --at) w->alive[at] = w->alive[at - 1];
            w->alive[at] = other;
        }
        w->comparisons += i + alive;
        if (w->comparisons > w->most) return UINT64_MAX;
        uint64_t end = 0, chosen = UINT64_MAX, gap = UINT64_MAX;
        for (int j = 0; j < alive; ++j) {
            const uint64_t next = w->offsets[w->alive[j]];
            if (next > end && next - end >= size && next - end < gap) {
                gap = next - end;
                chosen = end;
            }
            const uint64_t other_end = next + w->sizes[w->alive[j]];
            if (other_end > end) end = other_end;
        }
        if (chosen == UINT64_MAX) chosen = end;
        w->offsets[b] = chosen;
        if (chosen + size > top) top = chosen + size;
        if (top >= limit) return UINT64_MAX;
    }
    return top;
}

static void keep(work *w) {
    memcpy(w->best_offsets, w->offsets, (size_t)w->count * sizeof *w->offsets);
    memcpy(w->best_order, w->order, (size_t)w->count * sizeof *w->order);
}

enum order_kind { BY_SIZE, BY_TIME, BY_AREA, ORDERS, BY_END };

static int compare(const work *w, int kind, int32_t a, int32_t b) {
    const ln_lifetime *x = &w->buffers[a], *y = &w->buffers[b];
    if (kind == BY_END) return x->last != y->last ? (x->last < y->last ? -1 : 1) : a < b ? -1 : 1;
    if (kind == BY_TIME && x->first != y->first) return x->first < y->first ? -1 : 1;
    if (kind == BY_AREA) {
        const double p = (double)w->sizes[a] * (x->last - x->first + 1),
                     q = (double)w->sizes[b] * (y->last - y->first + 1);
        if (p != q) return p > q ? -1 : 1;
    }
    if (w->sizes[a] != w->sizes[b]) return w->sizes[a] > w->sizes[b] ? -1 : 1;
    const int32_t length_x = x->last - x->first, length_y = y->last - y->first;
    if (length_x != length_y) return length_x > length_y ? -1 : 1;
    return a < b ? -1 : 1;
}

/* Bottom-up merge sort: stable, no recursion, and the comparison needs a context that qsort cannot pass. */
static void sort(work *w, int kind) {
    int32_t *from = w->order, *to = w->alive;
    for (int width = 1; width < w->count; width *= 2) {
        for (int start = 0; start < w->count; start += 2 * width) {
            int middle = (int)ln_min(start + width, w->count), end = (int)ln_min(start + 2 * width, w->count);
            int a = start, b = middle;
            for (int i = start; i < end; ++i)
                to[i] = a < middle && (b >= end || compare(w, kind, from[a], from[b]) <= 0) ? from[a++] : from[b++];
        }
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != w->order) memcpy(w->order, from, (size_t)w->count * sizeof *from);
}

static void sorted(work *w, int kind) {
    for (int i = 0; i < w->count; ++i) w->order[i] = i;
    sort(w, kind);
}

/* Free bytes of memory below the top. */
typedef struct gap {
    uint64_t begin, end;
} gap;

/* Makes the bytes [begin, end) free. Gaps that touch are joined, and the list stays in order. */
static void give_back(gap *gaps, int *count, uint64_t begin, uint64_t end) {
    int low = 0, high = *count; /* `low` becomes the first gap after these bytes */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (gaps[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    const bool before = low > 0 && gaps[low - 1].end == begin, behind = low < *count && gaps[low].begin == end;
    if (before && behind) {
        gaps[low - 1].end = gaps[low].end;
        memmove(gaps + low, gaps + low + 1, (size_t)(--*count - low) * sizeof *gaps);
    } else if (before) {
        gaps[low - 1].end = end;
    } else if (behind) {
        gaps[low].begin = begin;
    } else {
        memmove(gaps + low + 1, gaps + low, (size_t)((*count)++ - low) * sizeof *gaps);
        gaps[low] = (gap){begin, end};
    }
}

/* Takes memory from the smallest gap that is large enough, or else at the top. Returns its offset. */
static uint64_t take(gap *gaps, int *count, uint64_t size, uint64_t *top) {
    int best = -1;
    for (int i = 0; i < *count; ++i) {
        const uint64_t room = gaps[i].end - gaps[i].begin;
        if (room >= size && (best < 0 || room < gaps[best].end - gaps[best].begin)) best = i;
    }
    uint64_t begin;
    if (best >= 0) {
        begin = gaps[best].begin;
        gaps[best].begin += size;
        if (gaps[best].begin == gaps[best].end)
            memmove(gaps + best, gaps + best + 1, (size_t)(--*count - best) * sizeof *gaps);
        return begin;
    }
    begin = *top;
    /* A gap at the top is used and extended. */
    if (*count > 0 && gaps[*count - 1].end == *top) begin = gaps[--*count].begin;
    *top = begin + size;
    return begin;
}

/* Visits the steps once. The memory of a buffer that has ended is free for the buffers that begin later. Without
 * `gaps`, no buffer gets an offset. Returns the bytes needed; *most is the largest sum of sizes in use at once, which
 * can only occur where a buffer begins. `ends`: the buffers ordered by their last step. */
static uint64_t sweep(work *w, const int32_t *ends, gap *gaps, uint64_t *most) {
    uint64_t top = 0, alive = 0;
    int count = 0, ended = 0;
    *most = 0;
    for (int i = 0; i < w->count; ++i) {
        const int32_t b = w->order[i];
        for (; w->buffers[ends[ended]].last < w->buffers[b].first; ++ended) {
            const int32_t gone = ends[ended];
            if (w->sizes[gone] == 0) continue;
            alive -= w->sizes[gone];
            if (gaps != NULL) give_back(gaps, &count, w->offsets[gone], w->offsets[gone] + w->sizes[gone]);
        }
        alive += w->sizes[b];
        if (alive > *most) *most = alive;
        if (gaps != NULL) w->offsets[b] = w->sizes[b] > 0 ? take(gaps, &count, w->sizes[b], &top) : 0;
    }
    return top;
}

static uint64_t next_random(uint64_t *state) { /* xorshift64 (Marsaglia, 2003) */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static uint64_t climb(work *w, uint64_t best, uint64_t bound) {
    uint64_t random = 0x9E3779B97F4A7C15u;
    w->comparisons = 0;
    w->most = INT64_MAX;
    while (best > bound && w->comparisons < CLIMB_COMPARISONS) {
        memcpy(w->order, w->best_order, (size_t)w->count * sizeof *w->order);
        /* Moving one buffer in front of another changes little in the rest of the order, which suits a hill climb. */
        const int moves = 1 + (int)(next_random(&random) % 3);
        for (int m = 0; m < moves; ++m) {
            const int from = (int)(next_random(&random) % (uint64_t)w->count);
            const int to = (int)(next_random(&random) % (uint64_t)w->count);
            const int32_t moved = w->order[from];
            if (from > to) memmove(w->order + to + 1, w->order + to, (size_t)(from - to) * sizeof *w->order);
            if (from < to) memmove(w->order + from, w->order + from + 1, (size_t)(to - from) * sizeof *w->order);
            w->order[to] = moved;
        }
        const uint64_t reached = assign(w, best + 1); /* accepts equal results too, to walk along plateaus */
        if (reached <= best) {
            best = reached;
            keep(w);
        }
    }
    return best;
}

linnet_status ln_plan_memory(ln_memory *temporary, ln_lifetime *buffers, int count, ln_memory_plan *out,
                             linnet_error *error) {
    memset(out, 0, sizeof *out);
    if (count == 0) return LINNET_OK;
    const size_t n = (size_t)count, gap_bytes = count > MANY ? n * sizeof(gap) : 0;
    const size_t bytes = n * (3 * sizeof(uint64_t) + 3 * sizeof(int32_t)) + gap_bytes;
    char *memory = ln_memory_alloc(temporary, bytes);
    if (memory == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to plan %d buffers", count);
    work w = {.buffers = buffers, .count = count, .most = MOST_COMPARISONS};
    gap *gaps = gap_bytes > 0 ? (gap *)memory : NULL;
    w.sizes = (uint64_t *)(memory + gap_bytes);
    w.offsets = w.sizes + n;
    w.best_offsets = w.offsets + n;
    w.order = (int32_t *)(w.best_offsets + n);
    w.best_order = w.order + n;
    w.alive = w.best_order + n;
    linnet_status status = LINNET_OK;
    for (int i = 0; i < count; ++i) {
        const uint64_t limit = (uint64_t)1 << 62;
        if (buffers[i].size > limit || out->naive > limit) {
            status = ln_fail(error, LINNET_TOO_LARGE, "the intermediate tensors need more than 2^62 bytes");
            goto done;
        }
        w.sizes[i] = (buffers[i].size + LN_ALIGNMENT - 1) / LN_ALIGNMENT * LN_ALIGNMENT;
        out->naive += w.sizes[i];
    }
    sorted(&w, BY_END);
    memcpy(w.best_order, w.order, n * sizeof *w.order);
    sorted(&w, BY_TIME);
    uint64_t best = sweep(&w, w.best_order, gaps, &out->lower_bound);
    if (gaps != NULL)
        keep(&w);
    else
        best = UINT64_MAX;
    for (int kind = 0; kind < ORDERS && best != out->lower_bound; ++kind) {
        sorted(&w, kind);
        const uint64_t reached = assign(&w, best);
        if (reached < best) {
            best = reached;
            keep(&w);
        }
    }
    out->reached = climb(&w, best, out->lower_bound);
    for (int i = 0; i < count; ++i) buffers[i].offset = w.best_offsets[i];
done:
    ln_memory_free(temporary, memory, bytes);
    return status;
}
