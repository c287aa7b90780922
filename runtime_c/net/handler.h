/* handler.h - the types of a stream: what its owner gives it, and what it gives back. Types only. */
#ifndef LN_NET_HANDLER_H
#define LN_NET_HANDLER_H

#include "net/frame.h"

typedef struct ln_net_stream ln_net_stream;

/* How the owner of a stream handles received frames. If `place` or `frame` returns a refusal, the stream fails. */
typedef struct ln_net_handler {
    void *context;
    /* Called with the header of a bulk frame before its payload is read. The checks of frame.h are done. The owner
     * checks the header against the manifest and its state, and sets *destination to the memory for the header.length
     * bytes of the payload. The transport writes them there without a copy. If the destination is NULL, the payload is
     * checked and dropped. If the owner pauses the stream during this call, the call is repeated with the same header
     * when the stream continues. */
    ln_net_refusal (*place)(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination);
    /* Called when a frame is complete and its checksum is right. The payload of a control frame is valid during the
     * call; the payload of a bulk frame is the destination that `place` gave. If a bulk frame has a wrong checksum, its
     * bytes may already be at the destination; the stream then fails. */
    ln_net_refusal (*frame)(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload);
    /* Called when a queued bulk message has been sent, or will never be sent because the stream was reset, the stream
     * refuses, or the message was cancelled. Its memory belongs to the owner again. During this call the owner may
     * queue other messages, but must not reset the stream. */
    void (*released)(void *context, ln_net_stream *stream, uint64_t tag);
} ln_net_handler;

typedef struct ln_net_slice {
    const void *data;
    size_t size;
} ln_net_slice;

#endif
