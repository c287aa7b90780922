/* server_update.h - prepares, tries and makes the update of a step. */
#ifndef LN_SYNC_SERVER_UPDATE_H
#define LN_SYNC_SERVER_UPDATE_H

#include "sync/server/server.h"

linnet_status ln_sync_prepare_step(ln_sync_server *server, linnet_error *error); /* writes row counts to server->rows */
void ln_sync_placed(ln_sync_server *server, uint32_t tensor, int64_t **ids, void **values);
/* ln_sync_size_placed returns the class of the gradients in their places. *finite false: the update overflows, so it
 * changes nothing. */
ln_sync_size ln_sync_size_placed(ln_sync_server *server);
linnet_status ln_sync_try_update(ln_sync_server *server, ln_sync_size size, bool *made, bool *finite,
                                 linnet_error *error);
linnet_status ln_sync_make_update(ln_sync_server *server, bool made, linnet_error *error); /* made: already made */

#endif
