/* server_state.h - the state of a server, only for the files server_*.c, record.c and barrier.c. This header has types
 * only. A connection is one stream. A member is one worker number, over all its connections. A group is a set of
 * members that close their steps together. */
#ifndef LN_SYNC_SERVER_STATE_H
#define LN_SYNC_SERVER_STATE_H

#include "sync/server/server.h"

/* An old value of a tensor, kept while it is being sent to slow readers, or the current value as f16 or bf16. */
typedef struct sync_copy {
    uint32_t references; /* number of messages that read it as an old value */
    uint64_t version, bytes;
    uint32_t *sums; /* for an encoded value: checksums of its chunks, which lie behind its bytes; otherwise NULL */
} sync_copy;        /* the bytes of the value follow the struct, 64-byte aligned */

/* A bulk message that is being sent to a connection. If a message reads a tensor's value directly instead of a copy, it
 * is in the list of that tensor. */
struct sync_send {
    struct sync_send *next, *previous; /* neighbours in the tensor's list; `next` is also used in the free list and in
                                          the connection's list of unsent replies */
    sync_connection *connection;
    uint32_t tensor;
    uint8_t type;
    uint8_t encoding;
    sync_copy *copy; /* if set, the message reads this copy and not the value */
    void *own;       /* rows or a report; freed with the message */
    uint64_t bytes, version;
};

/* A buffer that grows when needed, and is used again in later steps. */
struct sync_buffer {
    void *data;
    uint64_t capacity;
};

/* The last put of a process. */
struct sync_putter {
    uint64_t incarnation, number;
};

typedef struct sync_tensor {
    uint64_t changed;      /* version in which the value last changed */
    sync_send *readers;    /* list of the messages that read the value itself */
    sync_buffer ids, rows; /* for sparse tensors: row numbers and sums of the pushed rows in the step that closes */
    uint64_t digest[2], digest_version; /* digest of the value, and the version that it belongs to; see digest_known */
    uint32_t *sums;                     /* checksums of the value's chunks; NULL: none yet */
    uint64_t sums_version;              /* the version that `sums` belongs to */
    sync_copy *coded[2]; /* the value as f16 and bf16, made for the first message that sends it; NULL: not yet */
    bool digest_known;
} sync_tensor;

/* What a member has pushed for one tensor in the open step. */
typedef struct sync_push {
    sync_buffer values, ids, coded; /* coded: the received bytes, if they are encoded */
    uint64_t rows;                  /* number of rows of a sparse tensor; 0 for a dense one */
    uint64_t total, received, ids_received;
    uint8_t encoding; /* encoding of the values, the same in all chunks */
    /* begun: the first chunk of the values has come; whole: all chunks; ids_...: the same for the row numbers. */
    bool begun, whole, ids_begun, ids_whole;
    bool flying, cut; /* flying: a stream writes into a buffer; cut: chunks ended inside elements */
} sync_push;

struct sync_member {
    uint32_t id;
    sync_group *group;
    sync_connection *connection; /* NULL: lost, or the worker has left */
    bool live, decided;          /* live: connected, or within its lease; decided: `last` is valid */
    uint64_t lease_ends;         /* when the member is lost */
    uint64_t incarnation, from;  /* from: first step that waits for this member */
    uint64_t missed;             /* 1 + the last step that was counted as late; 0: none was */
    uint64_t last;               /* last step that was decided for this member */
    uint64_t touched;            /* number of closed steps of the server at the last contact */
    uint8_t outcome;             /* outcome of step `last` */
    bool held;                   /* the ACK waits for slower groups */
    bool parted;                 /* the worker said BYE, so it knows the outcome of its pushes */
    /* In the open step: */
    sync_push *pushes; /* one per tensor; NULL: nothing pushed yet */
    uint32_t begun;    /* number of messages that have begun */
    /* committed: COMMIT has come. finite: all pushed values are finite. folded: the pushes are in the group's sums. */
    bool committed, finite, folded;
    ln_sync_size size; /* class of the largest pushed element */
    ln_sync_commit commit;
    /* For the status, and for dividing batches. */
    /* rival: the last process that was refused because it claimed the same number. */
    char name[17], peer[64], rival[64];
    uint64_t rivals, rival_at; /* number of these refusals, and when the last one was */
    uint64_t applied, late, not_finite, staleness, heard, received, sent, first_example, examples;
    double speed; /* examples per second of computation, smoothed */
    double loss;
    uint64_t compute_ns; /* time of the worker's last computation */
};

struct sync_group {
    uint32_t id;
    uint64_t step; /* the open step */
    sync_member **members;
    uint32_t count, room;
    uint32_t live, awaited, committed, finite; /* awaited: live members expected in this step that have not committed */
    uint64_t clock[4];                         /* times of the open step, in the order of the ACK payload */
    uint64_t closed_clock[4];                  /* times of the last closed step */
    uint32_t closed_workers;                   /* number of workers in the update of the last closed step */
    /* When memory is short, pushes of members are added to `sums` before the step closes. These members are folded. */
    sync_buffer *sums; /* one per tensor; NULL: nothing was folded yet */
    uint32_t folded;
    double weight, weights;   /* weight of the first folded member; sum of all weights */
    bool equal;               /* all weights so far equal `weight`, and the sums are unweighted */
    double loss, loss_weight; /* mean loss of the last closed step, and the weight behind it; 0: no worker told one */
    double losses, loss_weights; /* sums over all steps since the start, for the status */
    uint64_t not_finite;         /* number of steps of which all pushes were dropped */
};

/* The states of a connection: HELLO is expected; WELCOME and TENSORS are being sent; READY is expected; the handshake
 * is done; the peer was refused or dropped. */
typedef enum sync_state { AWAIT_HELLO, ANNOUNCE, AWAIT_READY, SERVING, CLOSED } sync_state;

struct sync_connection {
    ln_sync_server *server;
    ln_net_stream *stream;
    void *owner;                /* the pointer of ln_sync_server_set_owner */
    sync_connection *wake_next; /* the next in the list of woken connections */
    uint32_t slot;              /* index in server->connections */
    sync_state state;
    ln_sync_hello hello;
    unsigned char nonce[16]; /* the server's nonce of this handshake */
    /* claim: the worker's number that the handshake agreed on. announced: number of tensors in TENSORS so far. */
    uint32_t claim, announced;
    uint64_t promised;                      /* the next step according to WELCOME */
    bool welcomed, woken, resumed, closing; /* resumed: the owner has not yet been told to read again */
    /* Frames that are to be sent as soon as the stream has room. pull_after: values follow the ACK. */
    bool ack_due, beat_due, saved_due, stored_due, pull_after;
    sync_member *member;                  /* NULL: before READY, and for clients that are no members */
    uint64_t opened, heard, paused_since; /* times of the beginning, of the last bytes, and of the pause; paused_since
                                             is 0 while the connection reads */
    uint64_t ack_step;                    /* this and the next fields: contents of the frames that are due */
    uint8_t ack_outcome;
    ln_sync_heartbeat beat;
    ln_sync_saved saved;
    ln_sync_stored stored;
    uint64_t stored_number;
    struct sync_put { /* a PUT message that is being received */
        sync_buffer value;
        uint64_t number, received;
        uint32_t tensor;
        bool begun, repeated; /* repeated: the value was stored before; the bytes are dropped */
    } put;
    uint64_t *known;  /* per tensor: version that the peer has or is receiving; LN_SYNC_NONE: no version. NULL: the peer
                         has pulled nothing */
    uint64_t *wanted; /* bits: tensors to be sent */
    uint32_t wanted_count, cursor; /* number of these bits; the tensor at which the search for the next one begins */
    uint64_t *held;                /* bits: tensors that the peer has named in a PULL */
    sync_send *replies, **replies_end; /* rows and reports that are not queued in the stream yet */
    /* A list of ROWS messages, requests for rows: being received, or not answered yet. */
    struct sync_rows {
        struct sync_rows *next;
        uint32_t tensor;
        int64_t *ids;
        uint64_t total, received, reserved; /* reserved: bytes that count towards max_bytes */
    } *rows;
    uint64_t received, sent;
    char peer[64];
};

struct ln_sync_server {
    const ln_sync_manifest *manifest;
    ln_sync_server_config config;
    ln_sync_apply apply;
    ln_sync_storage storage;
    ln_sync_host host;
    uint64_t now;               /* the time of the owner's last call */
    uint64_t version, sequence; /* number of updates; number of closed steps; both over all starts */
    /* At the last snapshot; journal_records: records since then. */
    uint64_t saved_version, saved_sequence, saved_at, journal_records;
    sync_tensor *tensors;
    sync_connection **connections;
    uint32_t connection_count;
    sync_connection *wake_first, **wake_end; /* list of woken connections */
    sync_member **members;                   /* ascending by id */
    uint32_t member_count, member_room;
    sync_group **groups;
    uint32_t group_count, group_room;
    uint64_t used;                  /* bytes that count towards max_bytes */
    uint32_t paused;                /* number of connections that wait for memory */
    sync_connection *token;         /* asynchronous mode: the one connection that may continue when memory is short */
    sync_send *free_sends, *copied; /* copied: the messages that read copies, the oldest last */
    uint64_t next_scan;             /* time at which time limits are checked again */
    uint64_t *rows;                 /* per tensor: number of rows of the closing step, for prepare */
    sync_buffer merged, means;      /* merged: row numbers; means: averaged values */
    ln_net_slice *record_parts;     /* pieces of a record */
    sync_buffer record;
    linnet_status failed;  /* LINNET_OK while the server works */
    linnet_error failure;  /* why the server has failed */
    uint64_t forgot_epoch; /* last epoch in which the server forgot a worker that may return; 0: there is none */
    sync_putter *putters;  /* ordered by their last puts, the oldest first */
    uint32_t putter_count;
    uint64_t forgot_put_epoch; /* last epoch in which the last put of a process was forgotten; 0: there is none */
    uint64_t left_out;         /* bytes of the journal's incomplete end */
    bool large;                /* a variable is LARGE (ln_sync_size), so every update is tried */
    /* For the status. */
    uint64_t began, applied, late, not_finite, steps_not_finite, dropped_readers, refused, update_ns, copies;
    uint64_t puts;                      /* values that clients have put since the start */
    uint64_t values_sent, values_saved; /* bytes of values in DATA, and bytes that f16 and bf16 saved */
    uint64_t lost_received, lost_sent;  /* bytes over connections that have ended */
};

#endif
