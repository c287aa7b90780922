/* stream_state.h - what a stream is made of: for stream.c and stream_send.c alone.
 * About 27 KB, and 80 bytes for each place in the queue of messages. */
#ifndef LN_SYNC_STREAM_STATE_H
#define LN_SYNC_STREAM_STATE_H

#include "sync/stream.h"

#include <string.h>

enum {
    STAGING = 8 << 10,   /* twice the longest control frame */
    CONTROLS = 16 << 10, /* control frames that wait */
    PIECES = 16,         /* slices that may be under way */
    BEHIND_MAX = 64,
    BATCH = 64 << 10 /* with so many bytes under way no other frame is begun: control frames wait behind these */
};

/* A bulk message. Chunks up to `begun` have their frames; `flying` of them are not sent yet. */
typedef struct stream_message {
    const unsigned char *data;
    uint64_t size, begun, tag, step;
    uint32_t *sums; /* of its chunks, shared; NULL: none */
    uint32_t tensor, flying;
    uint16_t flags;
    uint8_t type, encoding;
    bool used, whole; /* whole: no chunk of it is to come */
} stream_message;

/* Bytes of frames that were begun: they go out in this order. */
typedef struct stream_piece {
    const unsigned char *data;
    size_t size;
    int message; /* whose payload this is; or IN_CONTROLS, or IN_PLACE (a header of a chunk, or the refusal) */
} stream_piece;
enum { IN_CONTROLS = -1, IN_PLACE = -2 };

struct ln_sync_stream {
    ln_sync_handler handler;
    void *user;
    /* agreed */
    uint64_t job;
    uint32_t worker, chunk, expected;
    uint16_t shard;
    bool open, paused;
    ln_sync_refusal failure;
    uint64_t connection; /* counts resets: a handler may reset its stream */
    /* what comes in */
    bool in_bulk;
    uint32_t taken, crc; /* of the payload of `header` */
    unsigned char *destination;
    ln_sync_header header;
    size_t begin, end; /* of what is staged */
    /* what goes out */
    int places, waiting, first; /* order[first ..]: the messages with chunks to come, a ring */
    int *order;
    stream_message *messages;
    int pieces, next_header;
    size_t under_way;                      /* bytes of all pieces */
    size_t control, unbegun, control_sent; /* the ring: bytes that wait, those among them without a piece, its begin */
    size_t refusal;                        /* bytes of the REFUSE frame that waits for the rest; 0: none */
    stream_piece piece[PIECES];
    unsigned char headers[PIECES][LN_SYNC_HEADER];
    unsigned char refusal_frame[LN_SYNC_HEADER + LN_SYNC_REFUSE_BYTES + LN_SYNC_REFUSE_TEXT];
    size_t behind; /* bytes of the control frame that waits for the messages; 0: none */
    unsigned char behind_frame[LN_SYNC_HEADER + BEHIND_MAX];
    unsigned char controls[CONTROLS];
    unsigned char staging[STAGING];
};

void stream_send_reset(ln_sync_stream *stream);

#endif
