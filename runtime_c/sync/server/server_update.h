/* server_update.h - prepares, tries and makes the update of a step. Order of calls: ln_sync_prepare_step;
 * ln_sync_placed for each tensor, where the caller writes gradients; ln_sync_size_placed; ln_sync_try_update;
 * ln_sync_make_update. */
#ifndef LN_SYNC_SERVER_UPDATE_H
#define LN_SYNC_SERVER_UPDATE_H

#include "sync/server/server.h"

/* Makes room for gradients. The caller has written the number of rows of each sparse tensor to server->rows. */
linnet_status ln_sync_prepare_step(ln_sync_server *server, linnet_error *error);
/* Returns where the combined gradient or mean of a tensor is to be written. *ids is NULL for a tensor that is not
 * sparse. */
void ln_sync_placed(ln_sync_server *server, uint32_t tensor, int64_t **ids, void **values);
/* Returns the class of the gradients in their places. */
ln_sync_size ln_sync_size_placed(ln_sync_server *server);
/* Runs the update at once if it may overflow, because gradients (of class `size`) or variables are large. *made tells
 * whether the update was made. *finite is false if the update overflows; it has then changed nothing. */
linnet_status ln_sync_try_update(ln_sync_server *server, ln_sync_size size, bool *made, bool *finite,
                                 linnet_error *error);
/* Runs the update, unless ln_sync_try_update has made it, and counts it. */
linnet_status ln_sync_make_update(ln_sync_server *server, bool made, linnet_error *error);

#endif
