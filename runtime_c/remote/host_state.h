/* host_state.h - the types of a host's parts: clients, their buffers and pieces, and the models that pieces share. */
#ifndef LN_REMOTE_HOST_STATE_H
#define LN_REMOTE_HOST_STATE_H

#include "remote/host_config.h"
#include "remote/link.h"
#include "remote/sha256.h"

#include <pthread.h>
#include <stdatomic.h>

/* A model that one or more pieces use. */
typedef struct host_model {
    struct host_model *next;
    unsigned char digest[LN_SHA256];
    linnet_model *model;
    unsigned char *bytes; /* of the file, if it is not in the folder; NULL: it is mapped */
    size_t size;
    int users;
} host_model;

/* A piece in a session: what PREPARE made. */
typedef struct host_piece {
    struct host_piece *next;
    uint64_t id;
    host_model *model;
    linnet_session *session;
    uint64_t *buffers; /* that the session is bound to */
    int buffer_count;
    struct host_trace *trace; /* NULL: it is not traced */
} host_piece;

typedef struct host_buffer {
    uint64_t id, bytes;
    unsigned char *memory;
    int users; /* pieces that are bound to it */
} host_buffer;

/* A value that waits for the host that fetches it. */
typedef struct host_value {
    struct host_value *next;
    uint64_t number, bytes;
    unsigned char *memory; /* bytes + 64 of it; the value begins at LN_REMOTE_ANSWER_BYTES */
} host_value;

/* The values that one connection sends to one queue on another host, in the order of their numbers. */
typedef struct host_channel {
    struct host_channel *next;
    uint64_t id, last;    /* the highest number that was sent or left out */
    host_value *values;   /* the lowest number first */
    linnet_error failure; /* why the last one was left out; code 0: none was */
} host_channel;

typedef struct host_peer host_peer;
typedef struct host_connection host_connection;

/* A client: all connections with the same token. */
typedef struct host_client {
    struct host_client *next;
    unsigned char token[LN_REMOTE_TOKEN];
    int connections, users; /* its own, and with those of other hosts; guarded by the host's lock */
    bool gone;              /* no connection of its own is left */
    pthread_mutex_t lock;   /* of the rest */
    pthread_cond_t moved;   /* a value was sent or taken, or a connection has ended */
    host_connection *own;   /* its connections */
    host_buffer *buffers;
    int buffer_count, buffer_room;
    host_piece *pieces;
    pthread_mutex_t work; /* held while a SUBMIT is executed: a piece checks its indices and then uses them, so no other
                             connection of the client may write its memory meanwhile */
} host_client;

struct ln_host {
    ln_host_config config;
    ln_net_listener *listener;
    linnet_allocator allocator; /* counts `used`, and stops at max_bytes */
    _Atomic uint64_t used;      /* bytes of all clients */
    _Atomic int connections;    /* threads that serve one */
    int wake[2];                /* a pipe: ln_host_stop writes to it */
    atomic_bool stopping;
    pthread_mutex_t lock; /* of the rest */
    uint32_t last_number; /* of a connection */
    host_client *clients;
    host_model *models;
};

/* A connection, and the message that it works on. */
struct host_connection {
    ln_host *host;
    host_client *client; /* NULL: no HELLO yet */
    uint32_t number;     /* by which other hosts name it */
    bool joined;         /* it is another host's: it takes values, and nothing else */
    uint32_t chunk;      /* of both sides' bulk messages: the smaller of what they propose */
    ln_remote_link *link;
    unsigned char *work; /* a SUBMIT or a RECIPE that has arrived; NULL: none */
    uint8_t work_type;
    size_t work_size, work_room;
    bool local;            /* the way from the client is memory, so what has begun to arrive will soon be there */
    unsigned char *placed; /* not NULL: the value of an UPLOAD arrives there, and this connection holds client->work */
    bool work_dropped, piece_dropped; /* the last one arrived, but there was no memory for it */
    unsigned char *piece;             /* the last PIECE, until it is prepared; NULL: none */
    size_t piece_size, piece_room;
    unsigned char piece_digest[LN_SHA256];
    struct host_recipe *recipe; /* the last one, until it is a piece; NULL: none */
    unsigned char *answer;
    size_t answer_size, answer_room;
    host_peer *peers; /* hosts from which it fetches values */
    /* Of the SUBMIT that it works on: when it began, what FETCH took since the last run, and how much it brought. */
    uint64_t begun_ns, fetched_ns, fetched_bytes;
    /* Guarded by the client's lock: */
    host_connection *next;
    host_channel *channels;
    uint64_t sent_bytes; /* of all values that wait in the channels */
    bool lost;           /* its last SUBMIT could not be read, so nobody knows which values it would have sent */
};

#endif
