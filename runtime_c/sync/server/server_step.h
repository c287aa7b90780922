/* server_step.h - closes a step: combines the pushes of its members, and applies them. */
#ifndef LN_SYNC_SERVER_STEP_H
#define LN_SYNC_SERVER_STEP_H

#include "sync/server/server.h"

linnet_status ln_sync_apply_step(ln_sync_server *server, sync_group *group, linnet_error *error);
void ln_sync_fold(ln_sync_server *server, sync_group *group); /* adds committed pushes to `sums` in ascending order of
                                                                 members, up to the first one that is missing */

#endif
