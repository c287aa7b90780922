/* ship.h - sends a piece to a host that does not have it: its file without large constants, then the constants that the
 * host does not have either. */
#ifndef LN_REMOTE_SHIP_H
#define LN_REMOTE_SHIP_H

#include "remote/piece.h"
#include "remote/queue.h"

/* Returns when the host has everything that PREPARE needs. */
linnet_status ln_piece_ship(ln_remote_queue *queue, const ln_piece *piece, const unsigned char digest[LN_SHA256],
                            linnet_error *error);

#endif
