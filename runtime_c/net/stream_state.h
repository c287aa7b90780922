/* stream_state.h - the state of a stream, only for stream.c and stream_send.c.
 * About 27 KB, plus 80 bytes for each place in the queue of bulk messages. */
#ifndef LN_NET_STREAM_STATE_H
#define LN_NET_STREAM_STATE_H

#include "net/handler.h"

#include <string.h>

enum {
    STAGING = 8 << 10,   /* twice the longest control frame */
    CONTROLS = 16 << 10, /* room for the bytes of waiting control frames */
    PIECES = 16,         /* maximum number of slices being sent */
    BEHIND_MAX = 64,     /* longest payload of the frame that ln_net_stream_behind queues */
    BATCH = 64 << 10 /* no further frame is begun while this many bytes are being sent, because control frames have to
                      * wait for them */
};

/* A bulk message. Its first `begun` bytes have been made into frames; `flying` of these frames are not completely sent
 * yet. */
typedef struct stream_message {
    const unsigned char *head, *data; /* the first head_size bytes lie at head, and all others at data */
    uint64_t head_size, size, begun, tag, step;
    uint32_t *sums; /* checksums that are shared with other streams; NULL: this message computes its own */
    uint32_t tensor, flying;
    uint16_t flags;
    uint8_t type, encoding;
    bool used, whole; /* used: the place has a message; whole: no further chunk will be begun */
} stream_message;

/* Contiguous bytes of frames that were begun. Pieces are in the order in which they are sent. */
typedef struct stream_piece {
    const unsigned char *data;
    size_t size;
    /* The index of the message that owns these bytes; or IN_CONTROLS; or IN_PLACE for the header of a chunk and for
     * the refusal, whose bytes lie in the stream itself. */
    int message;
} stream_piece;
enum { IN_CONTROLS = -1, IN_PLACE = -2 };

struct ln_net_stream {
    const ln_net_protocol *protocol;
    ln_net_handler handler;
    void *user;
    /* What the handshake agreed on; valid if `open`. */
    uint64_t job;
    uint64_t expected; /* set of the types that the peer may send now */
    uint32_t worker, chunk;
    uint16_t shard;
    bool open, paused;
    ln_net_refusal failure; /* why the stream failed or refuses; LN_NET_FINE while it works */
    uint64_t connection;    /* number of resets; a change during a callback tells that the handler reset the stream */
    /* Receiving. */
    bool in_bulk;               /* the payload of a bulk frame is being received; `header` is its header */
    uint32_t taken, crc;        /* payload bytes of `header` that were received, and their checksum */
    unsigned char *destination; /* memory for that payload; NULL: the payload is dropped */
    ln_net_header header;
    size_t begin, end; /* range of the staged bytes */
    /* Sending. `order` is a ring of `places` entries. The `waiting` entries from `first` on are the messages that have
     * chunks left, in the order of their turns. */
    int places, waiting, first;
    int *order;
    stream_message *messages;
    int pieces, next_header;
    size_t under_way; /* number of bytes in all pieces */
    /* The ring `controls` has `control` unsent bytes from position `control_sent` on. The last `unbegun` of them have
     * no piece yet. */
    size_t control, unbegun, control_sent;
    size_t refusal; /* bytes of the REFUSE frame, which is sent after everything else; 0: none */
    stream_piece piece[PIECES];
    unsigned char headers[PIECES][LN_NET_HEADER];
    unsigned char refusal_frame[LN_NET_HEADER + LN_NET_REFUSE_BYTES + LN_NET_REFUSE_TEXT];
    size_t behind; /* bytes of the control frame that waits for the bulk messages; 0: none */
    unsigned char behind_frame[LN_NET_HEADER + BEHIND_MAX];
    unsigned char controls[CONTROLS];
    unsigned char staging[STAGING];
};

#endif
