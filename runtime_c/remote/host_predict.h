/* host_predict.h - says what a piece would cost on this host. */
#ifndef LN_REMOTE_HOST_PREDICT_H
#define LN_REMOTE_HOST_PREDICT_H

#include "remote/host_state.h"

/* What PREDICT asks. */
typedef struct host_sketch {
    const unsigned char *bytes; /* the beginning of a piece's file: the header and the tables */
    uint64_t size, file_size;   /* of the beginning, and of the whole file */
    int precision;
} host_sketch;

/* Plans the piece, and frees the plan. `predicted` receives the modelled nanoseconds of a run and the bytes that a
 * session takes. */
linnet_status ln_host_predict(ln_host *host, const host_sketch *sketch, uint64_t predicted[2], linnet_error *error);

#endif
