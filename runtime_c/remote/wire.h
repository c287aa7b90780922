/* wire.h - what a client and a host say to each other (docs/protocol.md, "Hosts"): messages and the commands in them.
 * A client sends SUBMIT, a list of commands that the host executes in order, and the host sends one ANSWER to each. All
 * numbers are little-endian; every command begins at a multiple of 8 bytes of its message. */
#ifndef LN_REMOTE_WIRE_H
#define LN_REMOTE_WIRE_H

#include "net/frame.h"

#include "linnet.h"

typedef enum ln_remote_type {
    LN_REMOTE_HELLO = 1,   /* client: version, chunk, who I am */
    LN_REMOTE_WELCOME = 2, /* host: version, chunk, limits */
    LN_REMOTE_REFUSE = LN_NET_REFUSE,
    LN_REMOTE_SUBMIT = 6,    /* client, in chunks: commands */
    LN_REMOTE_ANSWER = 7,    /* host, in chunks: the outcome, and the bytes that were asked for */
    LN_REMOTE_PIECE = 8,     /* client, in chunks: the file of a piece that the host does not have */
    LN_REMOTE_RECIPE = 9,    /* client, in chunks: the file without its large constants, which it names by digest */
    LN_REMOTE_CONSTANT = 10, /* client, in chunks: a constant of the last RECIPE that the host does not have */
    LN_REMOTE_JOIN = 11,     /* another host, in place of HELLO: it fetches values for a client of both hosts */
    LN_REMOTE_TYPES
} ln_remote_type;

extern const ln_net_protocol ln_remote_protocol;

enum { LN_REMOTE_VERSION = 1, LN_REMOTE_CHUNK = 1 << 20, LN_REMOTE_TOKEN = 16 };
/* HELLO and JOIN: u32 version, u32 chunk, the client's token. WELCOME: u32 version, u32 chunk, u64 bytes that the host
 * lends to clients (0: no limit of its own), u32 threads, u32 number of the connection, a text of at most 36 bytes, u32
 * flags. */
enum { LN_REMOTE_HELLO_BYTES = 24, LN_REMOTE_WELCOME_BYTES = 64, LN_REMOTE_NAME = 36 };
enum { LN_REMOTE_KEEPS = 1 }; /* a flag of WELCOME: the host keeps pieces in a folder */
/* RECIPE: u64 bytes of the file, u64 number of holes, the SHA-256 of the file, then for each hole u64 offset, u64
 * bytes, u32 CRC-32C, u32 reserved, the SHA-256; then the bytes of the file outside of the holes. ANSWER has a byte for
 * each hole: 1 if the host needs its CONSTANT. */
enum { LN_REMOTE_RECIPE_BYTES = 48, LN_REMOTE_HOLE_BYTES = 56 };
enum { LN_REMOTE_HOLE = 512, LN_REMOTE_HOLES = 65536 }; /* fewest bytes of a hole, and most holes of a recipe */

/* A command: u32 code, u32 reserved, then these u64 numbers. Buffers and pieces have numbers that the client chooses.
 */
typedef enum ln_remote_code {
    LN_REMOTE_ALLOCATE = 1, /* buffer, bytes */
    LN_REMOTE_RELEASE,      /* buffer */
    LN_REMOTE_PREPARE,      /* piece, digest (32 bytes), precision, number of inputs, number of outputs; then a buffer,
                               an offset and bytes for each input and each output */
    LN_REMOTE_UNPREPARE,    /* piece */
    LN_REMOTE_UPLOAD,       /* buffer, offset, bytes; then the bytes, and zeros up to a multiple of 8 */
    LN_REMOTE_RUN,          /* piece */
    LN_REMOTE_DOWNLOAD,     /* buffer, offset, bytes */
    LN_REMOTE_COPY,         /* buffer, offset; to buffer, offset; bytes */
    LN_REMOTE_NOTHING,      /* to measure how long an answer takes */
    LN_REMOTE_PREDICT,      /* bytes of a file, precision, bytes of its beginning; then these, and zeros up to a
                               multiple of 8. To the answer: LN_REMOTE_PREDICTED bytes */
    LN_REMOTE_PEER,         /* peer, token (16 bytes), bytes; then the address of another host, and zeros */
    LN_REMOTE_SEND,         /* channel, number, buffer, offset, bytes: keeps the bytes for another host */
    LN_REMOTE_FETCH,        /* peer, connection, channel, number, buffer, offset, bytes */
    LN_REMOTE_TAKE,         /* only after JOIN: connection, channel, number, bytes */
    LN_REMOTE_KEEP,         /* name (16 bytes), number, buffer, offset, bytes: writes the bytes to the folder */
    LN_REMOTE_RECALL,       /* name (16 bytes), number, buffer, offset, bytes: reads them */
    LN_REMOTE_ZERO,         /* buffer, offset, bytes */
    LN_REMOTE_TIMES = 30,   /* piece, step, count. To the answer: LN_REMOTE_RUN_BYTES about the last run of the piece,
                               then LN_REMOTE_TIME_BYTES for each of `count` steps, from `step` on */
    LN_REMOTE_STEPS = 31,   /* piece, step, count. To the answer: LN_REMOTE_TEXT_BYTES for each of these steps */
    LN_REMOTE_CODES
} ln_remote_code;

/* Of UPLOAD, before the bytes. A client that sends these bytes in a frame of their own, and nothing behind the value,
 * lets the host receive the value where it belongs. */
enum { LN_REMOTE_UPLOAD_BYTES = 32 };

/* Number of u64 after the first 8 bytes of each command. */
extern const unsigned char ln_remote_words[LN_REMOTE_CODES];

/* ANSWER: u32 status (linnet_status; LN_REMOTE_MISSING: PIECE must be sent before PREPARE), u32 number of the command
 * that failed. After a failure follows the error record, LN_REMOTE_RECORD bytes; otherwise the bytes of each DOWNLOAD
 * and PREDICT, each with zeros up to a multiple of 8. */
enum { LN_REMOTE_ANSWER_BYTES = 8, LN_REMOTE_MISSING = 1, LN_REMOTE_RECORD = 640 };
void ln_remote_record_write(const linnet_error *error, unsigned char record[LN_REMOTE_RECORD]);
void ln_remote_record_read(const unsigned char record[LN_REMOTE_RECORD], int32_t code, linnet_error *error);

/* The field after the code of PREPARE has flags, that of all other commands is 0. TRACED: TIMES will be asked for. */
enum { LN_REMOTE_TRACED = 1 };
/* Of TIMES, all u64, times in nanoseconds of the host's monotonic clock: now; when the host began the SUBMIT of the
 * run; begin and end of the run; nanoseconds that FETCH took before it, and bytes that it brought; number of steps.
 * Then begin and nanoseconds of each step. Of STEPS: texts of 72, 24 and 32 bytes: name, op, kernel. */
enum {
    LN_REMOTE_RUN_BYTES = 56,
    LN_REMOTE_TIME_BYTES = 16,
    LN_REMOTE_TEXT_BYTES = 128,
    LN_REMOTE_TEXT_OP = 72,
    LN_REMOTE_TEXT_KERNEL = 96,
    LN_REMOTE_MOST_TIMES = 1024 /* steps of one command */
};

/* Of PREDICT: u64 nanoseconds of a run, u64 bytes that a session takes. */
enum { LN_REMOTE_PREDICTED = 16 };

#endif
