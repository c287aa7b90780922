/* stream_state.h - the state of a stream, only for stream.c and stream_send.c.
 * About 27 KB, plus 80 bytes for each place in the queue of bulk messages. */
#ifndef LN_NET_STREAM_STATE_H
#define LN_NET_STREAM_STATE_H

#include "net/handler.h"

#include <string.h>

enum {
    STAGING = 8 << 10,   /* twice the longest control frame */
    CONTROLS = 16 << 10, /* bytes of waiting control frames */
    PIECES = 16,         /* maximum number of slices being sent */
    BEHIND_MAX = 64,
    BATCH = 64 << 10 /* no further frame is begun while this many bytes are being sent, because control frames have to
                      * wait for them */
};

/* A bulk message. The chunks up to `begun` have been made into frames; `flying` of these frames are not sent yet. */
typedef struct stream_message {
    const unsigned char *data;
    uint64_t size, begun, tag, step;
    uint32_t *sums; /* shared checksums of its chunks; NULL: none */
    uint32_t tensor, flying;
    uint16_t flags;
    uint8_t type, encoding;
    bool used, whole; /* whole: all its chunks are begun */
} stream_message;

/* Some bytes of frames that were begun. Pieces are in the order in which they are sent. */
typedef struct stream_piece {
    const unsigned char *data;
    size_t size;
    int message; /* message whose payload this is; or IN_CONTROLS, or IN_PLACE (a header of a chunk, or the refusal) */
} stream_piece;
enum { IN_CONTROLS = -1, IN_PLACE = -2 };

struct ln_net_stream {
    const ln_net_protocol *protocol;
    ln_net_handler handler;
    void *user;
    /* agreed */
    uint64_t job;
    uint64_t expected; /* set of messages */
    uint32_t worker, chunk;
    uint16_t shard;
    bool open, paused;
    ln_net_refusal failure;
    uint64_t connection; /* number of resets, because a handler may reset its stream */
    /* receiving */
    bool in_bulk;
    uint32_t taken, crc; /* payload bytes of `header` that were received, and their checksum */
    unsigned char *destination;
    ln_net_header header;
    size_t begin, end; /* range of the staged bytes */
    /* sending */
    int places, waiting, first; /* order[first ..]: ring of the messages that have chunks left */
    int *order;
    stream_message *messages;
    int pieces, next_header;
    size_t under_way;                      /* bytes in all pieces */
    size_t control, unbegun, control_sent; /* ring of control frames: bytes that wait, waiting bytes that have no piece
                                              yet, where the ring begins */
    size_t refusal;                        /* bytes of the REFUSE frame, which is sent after everything else; 0: none */
    stream_piece piece[PIECES];
    unsigned char headers[PIECES][LN_NET_HEADER];
    unsigned char refusal_frame[LN_NET_HEADER + LN_NET_REFUSE_BYTES + LN_NET_REFUSE_TEXT];
    size_t behind; /* bytes of the control frame that waits for the bulk messages; 0: none */
    unsigned char behind_frame[LN_NET_HEADER + BEHIND_MAX];
    unsigned char controls[CONTROLS];
    unsigned char staging[STAGING];
};

#endif
