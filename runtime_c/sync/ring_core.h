/* ring_core.h - the logic of a ring all-reduce over two streams, without input, output or clock.
 * Reduce-scatter, then all-gather: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
 *
 * The array is cut into as many segments as there are ranks, each segment into as many pieces as make frames. In round
 * r of 2 (size - 1), rank k sends segment k - r to its right neighbour and takes segment k - r - 1 from its left one;
 * in the first half what came is added to its own, in the second half it takes its place. A piece goes on as soon as it
 * came, so that all links are busy all the time. Every segment is summed once, in one order: all ranks get the same
 * bits. Pieces are sent in the order of their number (header.tensor), round by round. */
#ifndef LN_SYNC_RING_CORE_H
#define LN_SYNC_RING_CORE_H

#include "sync/stream.h"

#include "linnet_sync.h"

enum { LN_SYNC_RING_QUEUE = 8 /* messages that wait in the right stream */ };

typedef struct ln_sync_ring {
    int rank, size;
    size_t piece;           /* bytes of one, at most; a multiple of 8 */
    unsigned char *scratch; /* a piece that is to be added */
    ln_sync_stream *left, *right;
    /* the all-reduce under way */
    bool active, paused;
    unsigned char *data;
    uint64_t count, number; /* elements; which all-reduce of this ring it is */
    size_t width;
    int dtype, operation;
    uint64_t pieces; /* in a segment */
    uint64_t all, received, queued, released;
    /* why the ring is broken, as a neighbour has told; lost: the rank concerned, -1: it is whole */
    int lost;
    ln_sync_refusal why;
    char text[LN_SYNC_REFUSE_TEXT + 1];
    bool left_said_bye;
} ln_sync_ring;

static inline int ln_sync_ring_left(const ln_sync_ring *ring) { return (ring->rank + ring->size - 1) % ring->size; }
static inline int ln_sync_ring_right(const ln_sync_ring *ring) { return (ring->rank + 1) % ring->size; }
/* What both streams of the ring are made with. */
ln_sync_handler ln_sync_ring_handler(ln_sync_ring *ring);
/* Begins: data has `count` elements of a dtype that ln_sync_ring_width knows. The streams are open. */
void ln_sync_ring_begin(ln_sync_ring *ring, void *data, uint64_t count, int dtype, int operation);
/* All has come and all is sent: data is the result. Ends the all-reduce. */
bool ln_sync_ring_done(ln_sync_ring *ring);
/* Bytes of an element; 0: a dtype that cannot be summed. */
size_t ln_sync_ring_width(int dtype);
/* Tells the ranks to the right that rank `lost` is lost (REFUSE, whose detail is the rank + 1). */
void ln_sync_ring_tell(ln_sync_ring *ring, int lost, ln_sync_refusal why, const char *text);

#endif
