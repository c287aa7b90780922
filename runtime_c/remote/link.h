/* link.h - one connection between a client and a host, with blocking calls: sends messages, and gives each message
 * that arrives as a whole to a callback. A link is used by one thread at a time. */
#ifndef LN_REMOTE_LINK_H
#define LN_REMOTE_LINK_H

#include "net/transport.h"
#include "remote/wire.h"

typedef struct ln_remote_link ln_remote_link;

/* Receives a whole message. The bytes belong to the link and stay until the callback returns, unless it takes them.
 * `bytes` is NULL if there was no memory for the message, which is dropped. Returns LN_NET_FINE, or why the peer is
 * refused. The callback must not send. */
typedef ln_net_refusal ln_remote_receive(void *context, ln_remote_link *link, uint8_t type, const unsigned char *bytes,
                                         size_t size);

/* Memory for messages that arrive. `take` returns NULL if there is none. */
typedef struct ln_remote_memory {
    void *context;
    void *(*take)(void *context, size_t size);
    void (*give)(void *context, void *memory, size_t size);
} ln_remote_memory;

/* The message that is arriving: its first `arrived` bytes are there, or where ln_remote_direct has put them. */
typedef struct ln_remote_arriving {
    const unsigned char *bytes;
    uint64_t arrived, total;
    uint8_t type;
} ln_remote_arriving;
/* Says where the next chunk of a message belongs instead of behind the others; NULL: behind the others. */
typedef unsigned char *ln_remote_direct(void *context, const ln_remote_arriving *message);

/* Creates a link over a connection, which it owns from then on, also if it fails: the result is then NULL. `memory`
 * NULL: malloc. */
ln_remote_link *ln_remote_link_new(ln_net_transport *transport, const ln_remote_memory *memory,
                                   ln_remote_receive *receive, void *context);
void ln_remote_link_free(ln_remote_link *link);
void ln_remote_link_set_direct(ln_remote_link *link, ln_remote_direct *direct);
/* Ends the handshake: from now on messages may have chunks of so many bytes. */
void ln_remote_link_open(ln_remote_link *link, uint32_t chunk);
/* Stops the delivery of messages, or continues it. The callback may stop it; it must not continue it. */
linnet_status ln_remote_link_pause(ln_remote_link *link, bool paused, linnet_error *error);
/* Takes the message that the callback has just received. The caller gives its `*size` bytes of memory back. */
unsigned char *ln_remote_link_take(ln_remote_link *link, size_t *size);
/* Sends a message, and returns when it is sent. Messages that arrive meanwhile go to the callback. */
linnet_status ln_remote_link_send(ln_remote_link *link, uint8_t type, const void *bytes, size_t size,
                                  linnet_error *error);
/* Begins to send a message, whose bytes must stay until ln_remote_link_sends says false. */
linnet_status ln_remote_link_begin(ln_remote_link *link, uint8_t type, const void *bytes, size_t size,
                                   linnet_error *error);
/* Does the same for a message of a bulk type that lies in two places, which go in chunks of their own. */
linnet_status ln_remote_link_gather(ln_remote_link *link, uint8_t type, const ln_net_slice *head,
                                    const ln_net_slice *rest, linnet_error *error);
/* Tells whether something is left to send. */
bool ln_remote_link_sends(const ln_remote_link *link);
/* Moves what can be moved. If nothing can, waits for at most `timeout_ms` (-1: no limit). */
linnet_status ln_remote_link_turn(ln_remote_link *link, int timeout_ms, linnet_error *error);
/* Does the same for several links, at most LN_REMOTE_TOGETHER, and returns the failure of the first one. A link that
 * has failed says so again when it is used. */
enum { LN_REMOTE_TOGETHER = 32 };
linnet_status ln_remote_links_turn(ln_remote_link *const *links, int count, int timeout_ms, linnet_error *error);
/* Tells the peer why the connection ends. */
void ln_remote_link_refuse(ln_remote_link *link, ln_net_refusal why, const char *text);
/* Ends the connection: from now on the link fails with this error. */
void ln_remote_link_break(ln_remote_link *link, const linnet_error *why);
/* Number of bytes sent so far. */
uint64_t ln_remote_link_sent(const ln_remote_link *link);
/* Tells whether the connection has not failed yet. */
bool ln_remote_link_works(const ln_remote_link *link);

#endif
