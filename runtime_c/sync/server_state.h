/* server_state.h - what a server is made of: for the server_*.c files and barrier.c alone.
 * connection: one stream. member: one worker number, over all its connections. group: members with one barrier. */
#ifndef LN_SYNC_SERVER_STATE_H
#define LN_SYNC_SERVER_STATE_H

#include "sync/server_core.h"

typedef struct sync_connection sync_connection;
typedef struct sync_member sync_member;
typedef struct sync_group sync_group;

/* An old value of a tensor, kept while it is on its way to slow readers. */
typedef struct sync_copy {
    uint32_t references;
    uint64_t version, bytes;
} sync_copy; /* the bytes follow, 64-byte aligned */

/* A bulk message to a connection, and its tag there. Of a tensor's value: in the tensor's list while it reads the
 * value itself. */
typedef struct sync_send {
    struct sync_send *next, *previous; /* tensor's list; or next: the free list, or the connection's unsent replies */
    sync_connection *connection;
    uint32_t tensor;
    uint8_t type;
    sync_copy *copy; /* reads this, not the value */
    void *own;       /* rows or a report: freed with it */
    uint64_t bytes, version;
} sync_send;

/* A buffer that grows, and is kept from step to step. */
typedef struct sync_buffer {
    void *data;
    uint64_t capacity;
} sync_buffer;

typedef struct sync_tensor {
    uint64_t changed;      /* version with which its value last changed */
    sync_send *readers;    /* of the value itself */
    sync_buffer ids, rows; /* sums of the rows that were pushed */
    uint64_t digest[2], digest_version;
    uint32_t *sums; /* checksums of its chunks, of the version */
    uint64_t sums_version;
    bool digest_known;
} sync_tensor;

/* What a member has pushed of a tensor in the open step. */
typedef struct sync_push {
    sync_buffer values, ids, coded; /* coded: as it came, when it is not plain */
    uint64_t rows;                  /* sparse: how many; dense: 0 */
    uint64_t total, received, ids_received;
    uint8_t encoding; /* of the values: the same in all chunks */
    bool begun, whole, ids_begun, ids_whole;
    bool flying, cut; /* a stream writes into a buffer; chunks ended inside elements */
} sync_push;

struct sync_member {
    uint32_t id;
    sync_group *group;
    sync_connection *connection; /* NULL: lost or gone */
    bool live, decided;          /* live: connected, or its lease still runs. decided: `last` is something */
    uint64_t lease_ends;         /* when it is lost */
    uint64_t incarnation, from;  /* from: first step that waits for it */
    uint64_t missed;             /* one above the last step whose push came late, as counted */
    uint64_t last;               /* step that was decided last for it, */
    uint64_t touched;            /* closed steps of the server when it was heard of last */
    uint8_t outcome;             /* and how */
    bool held;                   /* its ACK waits for slower groups */
    bool parted;                 /* it has said BYE: it knows what became of its pushes */
    /* the open step */
    sync_push *pushes; /* per tensor; NULL: none yet */
    uint32_t begun;    /* messages that have begun */
    bool committed, finite, folded;
    ln_sync_size size; /* of the largest element that it has pushed */
    ln_sync_commit commit;
    /* for people, and for shares */
    char name[17], peer[64];
    uint64_t applied, late, not_finite, staleness, heard, received, sent, first_example, examples;
    double speed; /* examples per second of computing, smoothed */
    double loss;
    uint64_t compute_ns;
};

struct sync_group {
    uint32_t id;
    uint64_t step; /* open */
    sync_member **members;
    uint32_t count, room;
    uint32_t live, awaited, committed, finite; /* awaited: live, expected in this step, not committed */
    uint64_t clock[4];                         /* of the step that is open or was closed last, as ACK has them */
    uint64_t closed_clock[4];
    uint32_t closed_workers;
    /* members folded already: their pushes are in `sums` */
    sync_buffer *sums; /* per tensor */
    uint32_t folded;
    double weight, weights; /* of the first folded; the sum */
    bool equal;             /* all weights so far are `weight`, and the sums are unweighted */
    double loss;
    uint64_t not_finite; /* steps that were dropped whole */
};

typedef enum sync_state { AWAIT_HELLO, ANNOUNCE, AWAIT_READY, SERVING, CLOSED } sync_state;

struct sync_connection {
    ln_sync_server *server;
    ln_sync_stream *stream;
    void *owner;
    sync_connection *wake_next;
    uint32_t slot;
    sync_state state;
    ln_sync_hello hello;
    unsigned char nonce[16];
    uint32_t claim, announced; /* claim: the worker's number, as agreed in the handshake */
    uint64_t promised;         /* the step that WELCOME said is next */
    bool welcomed, woken, resumed, closing;
    bool ack_due, beat_due, saved_due, pull_after; /* pull_after: values behind the ACK */
    sync_member *member;
    uint64_t opened, heard, paused_since; /* paused_since: 0: reading */
    uint64_t ack_step;
    uint8_t ack_outcome;
    ln_sync_beat beat;
    ln_sync_saved saved;
    uint64_t *known;  /* per tensor: version it has or gets; LN_SYNC_NONE: none. NULL: has pulled nothing */
    uint64_t *wanted; /* bits: to be answered */
    uint32_t wanted_count, cursor;
    uint64_t *held; /* bits: tensors it has named in a PULL */
    sync_send *replies, **replies_end;
    /* a ROWS message that is coming in */
    struct sync_rows {
        struct sync_rows *next;
        uint32_t tensor;
        int64_t *ids;
        uint64_t total, received, reserved; /* reserved: bytes that count for max_bytes */
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
    uint64_t now;
    uint64_t version, sequence; /* updates; closed steps */
    uint64_t saved_version, saved_sequence, saved_at, journal_records;
    sync_tensor *tensors;
    sync_connection **connections;
    uint32_t connection_count;
    sync_connection *wake_first, **wake_end;
    sync_member **members; /* by id, ascending */
    uint32_t member_count, member_room;
    sync_group **groups;
    uint32_t group_count, group_room;
    uint64_t used;                  /* bytes that count for max_bytes */
    uint32_t paused;                /* connections that wait for memory */
    sync_connection *token;         /* asynchronous: goes on although memory is short */
    sync_send *free_sends, *copied; /* copied: those that read copies, the oldest last */
    uint64_t next_scan;
    uint64_t *rows;              /* per tensor, for prepare */
    sync_buffer merged, means;   /* row numbers; averaged values */
    ln_sync_slice *record_parts; /* of a record */
    sync_buffer record;
    linnet_status failed;
    linnet_error failure;
    uint64_t forgot_epoch; /* the last one in which a worker was forgotten that may come again; 0: never */
    uint64_t left_out;     /* bytes of the journal */
    bool large;            /* variables are: every update is tried */
    /* for people */
    uint64_t began, applied, late, not_finite, steps_not_finite, dropped_readers, refused, update_ns, copies;
    uint64_t lost_received, lost_sent; /* bytes of connections that ended */
};

/* ---- server_core.c */
void ln_sync_wake(sync_connection *c);
void ln_sync_fail_server(ln_sync_server *server, const linnet_error *error);
/* Ends a connection: with a word to the peer, or at once. */
void ln_sync_refuse_peer(sync_connection *c, ln_sync_refusal why, uint32_t detail, const char *format, ...);
void ln_sync_drop_peer(sync_connection *c);
/* Buffers that count for max_bytes: false: no memory. */
bool ln_sync_grow(ln_sync_server *server, sync_buffer *buffer, uint64_t bytes);
void ln_sync_empty(ln_sync_server *server, sync_buffer *buffer);
bool ln_sync_fits(const ln_sync_server *server, uint64_t bytes);
void ln_sync_resume_peers(ln_sync_server *server); /* memory was freed */
uint64_t ln_sync_job_number(const ln_sync_server *server);
bool ln_sync_tell(sync_connection *c, uint8_t type, uint64_t step, const void *payload, size_t size);

/* ---- server_join.c */
ln_sync_refusal ln_sync_take_hello(sync_connection *c, const ln_sync_header *header, const void *payload);
ln_sync_refusal ln_sync_take_ready(sync_connection *c, const ln_sync_header *header, const void *payload);
void ln_sync_announce(sync_connection *c); /* WELCOME, TENSORS */
/* NULL: none, or no memory. Making one may forget another, and its group: ask for groups afterwards. */
sync_member *ln_sync_member(ln_sync_server *server, uint32_t id, bool make);
sync_group *ln_sync_group(ln_sync_server *server, uint32_t id, bool make);
bool ln_sync_enter_group(sync_group *group, sync_member *member);
void ln_sync_free_member(ln_sync_server *server, sync_member *member);
void ln_sync_free_group(ln_sync_server *server, sync_group *group);

/* ---- server_push.c */
ln_sync_refusal ln_sync_place_push(sync_connection *c, const ln_sync_header *header, void **destination);
ln_sync_refusal ln_sync_take_push(sync_connection *c, const ln_sync_header *header, const void *payload);
ln_sync_refusal ln_sync_take_commit(sync_connection *c, const ln_sync_header *header, const void *payload);
void ln_sync_discard(ln_sync_server *server, sync_member *member, bool free_memory); /* what it pushed of the step */

/* ---- server_pull.c */
ln_sync_refusal ln_sync_take_pull(sync_connection *c, const ln_sync_header *header, const void *payload);
ln_sync_refusal ln_sync_place_rows(sync_connection *c, const ln_sync_header *header, void **destination);
ln_sync_refusal ln_sync_take_rows(sync_connection *c, const ln_sync_header *header, const void *payload);
void ln_sync_want_held(sync_connection *c);
void ln_sync_answer_pulls(sync_connection *c);
/* Queues bytes that it then owns, and frees when they have left. */
bool ln_sync_reply(sync_connection *c, uint8_t type, uint32_t tensor, void *own, uint64_t bytes);
void ln_sync_released(sync_send *send);
void ln_sync_free_pulls(sync_connection *c);
/* Nobody reads the values themselves any more: old ones are copied for those who do, or these are dropped. */
void ln_sync_detach(ln_sync_server *server);

/* ---- barrier.c */
void ln_sync_count_group(sync_group *group);
void ln_sync_consider(ln_sync_server *server, sync_group *group); /* closes its step if that is due */
void ln_sync_consider_all(ln_sync_server *server);
void ln_sync_leave(ln_sync_server *server, sync_member *member);                     /* it is waited for no longer */
void ln_sync_count_late(ln_sync_server *server, sync_member *member, uint64_t step); /* once */
void ln_sync_acknowledge(sync_connection *c, uint64_t step, uint8_t outcome);
bool ln_sync_may_go_on(const ln_sync_server *server, const sync_group *group);
uint64_t ln_sync_slowest(const ln_sync_server *server);
void ln_sync_send_ack(sync_connection *c);

/* ---- server_step.c */
linnet_status ln_sync_apply_step(ln_sync_server *server, sync_group *group, linnet_error *error);
linnet_status ln_sync_prepare_step(ln_sync_server *server, linnet_error *error); /* for server->rows */
void ln_sync_placed(ln_sync_server *server, uint32_t tensor, int64_t **ids, void **values);
/* size: of what was placed. *finite false: it overflows, and nothing is changed. */
ln_sync_size ln_sync_size_placed(ln_sync_server *server);
linnet_status ln_sync_try_update(ln_sync_server *server, ln_sync_size size, bool *made, bool *finite,
                                 linnet_error *error);
linnet_status ln_sync_make_update(ln_sync_server *server, bool made, linnet_error *error); /* made: by try_update */
void ln_sync_fold(ln_sync_server *server, sync_group *group); /* those at the front of the order */

/* ---- record.c: what the journal and snapshots keep */
linnet_status ln_sync_append_record(ln_sync_server *server, sync_group *group, bool update, linnet_error *error);
linnet_status ln_sync_skip_to(ln_sync_server *server, sync_group *group, uint64_t step, linnet_error *error);
/* The table of a snapshot, to be freed; NULL: no memory. */
char *ln_sync_write_table(const ln_sync_server *server);

#endif
