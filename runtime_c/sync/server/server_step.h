/* server_step.h - closes a step: combines the pushes of its members, and applies them. */
#ifndef LN_SYNC_SERVER_STEP_H
#define LN_SYNC_SERVER_STEP_H

#include "sync/server/server.h"

/* Combines the gradients of the group's committed members, writes the journal, and makes the update. A step whose
 * result is not finite is dropped, which is no error. After an error, the server must end, because the journal may have
 * a step that the values do not have. */
linnet_status ln_sync_apply_step(ln_sync_server *server, sync_group *group, linnet_error *error);
/* Frees memory before the step closes: adds the pushes of committed members to group->sums, in ascending order of
 * members up to the first member that has not committed. The order keeps the bits of the result the same. */
void ln_sync_fold(ln_sync_server *server, sync_group *group);

#endif
