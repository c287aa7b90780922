/* ring_core.h - the logic of a ring all-reduce over two streams, without I/O or clock.
 * Reduce-scatter, then all-gather: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
 *
 * The array is cut into as many segments as there are ranks, and each segment into pieces of frame size. In round r of
 * 2 (size - 1), rank k sends segment k - r to its right neighbour and receives segment k - r - 1 from its left
 * neighbour. In the first half of the rounds, a received piece is added to the rank's own piece; in the second half, it
 * replaces that piece. A piece is forwarded as soon as it arrives, so that all links are always busy. Every segment is
 * summed once, in one order, so all ranks get the same bits. Pieces are sent in the order of their number
 * (header.tensor), round by round.
 */
#ifndef LN_SYNC_RING_CORE_H
#define LN_SYNC_RING_CORE_H

#include "net/handler.h"
#include "sync/codec/payload.h"

#include "linnet_sync.h"

enum { LN_SYNC_RING_QUEUE = 8 /* messages queued in the right stream */ };

typedef struct ln_sync_ring {
    int rank, size;
    size_t piece;           /* largest size of a piece in bytes; a multiple of 8 */
    unsigned char *scratch; /* memory of `piece` bytes for a received piece until it is added */
    ln_net_stream *left, *right;
    /* The current all-reduce; the fields are valid if `active`. */
    bool active, paused; /* paused: the left stream waits for the next all-reduce of this rank */
    unsigned char *data;
    uint64_t count, number; /* number of elements; sequence number of this all-reduce in the ring */
    size_t width;           /* bytes of an element */
    int dtype, operation;
    uint64_t pieces;                          /* pieces per segment */
    uint64_t all, received, queued, released; /* numbers of pieces: all that are to be received, and as many to be
                                                 sent; received; queued for sending; completely sent */
    /* What a neighbour has said about a broken ring. lost: the rank that is lost; -1: the ring is not broken. */
    int lost;
    ln_net_refusal why;
    char text[LN_NET_REFUSE_TEXT + 1];
    bool left_said_bye; /* the left neighbour has ended its ring, so the end of its connection is no error */
} ln_sync_ring;

static inline int ln_sync_ring_left(const ln_sync_ring *ring) { return (ring->rank + ring->size - 1) % ring->size; }
static inline int ln_sync_ring_right(const ln_sync_ring *ring) { return (ring->rank + 1) % ring->size; }
/* Returns the handler for both streams of the ring. `ring` must outlive the streams. */
ln_net_handler ln_sync_ring_handler(ln_sync_ring *ring);
/* Begins an all-reduce of `count` elements at `data`, of a dtype whose ln_sync_ring_width is not 0. All ranks must
 * begin the same all-reduces in the same order. The streams must be open, and the last all-reduce must be done. `data`
 * must not be touched until ln_sync_ring_done returns true. */
void ln_sync_ring_begin(ln_sync_ring *ring, void *data, uint64_t count, int dtype, int operation);
/* If everything is received and sent, ends the all-reduce and returns true. `data` then holds the result. */
bool ln_sync_ring_done(ln_sync_ring *ring);
/* Returns the number of bytes per element, or 0 for a dtype that cannot be summed. */
size_t ln_sync_ring_width(int dtype);
/* Tells the ranks to the right that rank `lost` is lost. It queues REFUSE with the detail lost + 1 in the right stream.
 */
void ln_sync_ring_tell(ln_sync_ring *ring, int lost, ln_net_refusal why, const char *text);

#endif
