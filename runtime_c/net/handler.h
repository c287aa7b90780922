/* handler.h - the types that a stream and its owner exchange: the owner's callbacks, and the bytes to be sent. This
 * header has types only. stream.h has the functions. */
#ifndef LN_NET_HANDLER_H
#define LN_NET_HANDLER_H

#include "net/frame.h"

typedef struct ln_net_stream ln_net_stream;

/* The owner's callbacks. If `place` or `frame` returns a refusal, the stream fails and sends
 * this refusal to the peer. The stream calls them only inside its own functions, on the thread of the caller. */
typedef struct ln_net_handler {
    void *context;
    /* Called with the header of a bulk frame before its payload is read. The checks of frame.h are done. The owner
     * checks the header against its own state, and sets *destination to the memory for the header.length bytes of the
     * payload. The transport writes the payload there without a copy. The memory must stay valid until `frame` is
     * called or the stream is reset. If *destination stays NULL, the stream checks and drops the payload. If the owner
     * pauses the stream during this call, the call is repeated with the same header when the stream continues. */
    ln_net_refusal (*place)(void *context, ln_net_stream *stream, const ln_net_header *header, void **destination);
    /* Called when a frame is complete and its checksum is right. The payload of a control frame is valid only during
     * the call. The payload of a bulk frame is the destination that `place` gave. If a bulk frame has a wrong checksum,
     * its bytes may already be at the destination; the stream then fails. */
    ln_net_refusal (*frame)(void *context, ln_net_stream *stream, const ln_net_header *header, const void *payload);
    /* Called once for each queued bulk message, with the tag that the owner gave it: when the message has been sent, or
     * when it will never be sent because the stream was reset, the stream refuses, or the message was cancelled. The
     * memory of the message belongs to the owner again. During this call the owner may queue other messages, but must
     * not reset the stream. */
    void (*released)(void *context, ln_net_stream *stream, uint64_t tag);
} ln_net_handler;

/* Bytes that are to be sent. The memory belongs to the stream or to the owner of a message. */
typedef struct ln_net_slice {
    const void *data;
    size_t size;
} ln_net_slice;

#endif
