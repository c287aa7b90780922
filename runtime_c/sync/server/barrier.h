/* barrier.h - decides when a step closes, and tells its members the outcome. */
#ifndef LN_SYNC_BARRIER_H
#define LN_SYNC_BARRIER_H

#include "sync/server/server.h"

/* Closes the group's open step if enough members have committed. Call this when a member has committed or left. With
 * bounded staleness, this may close steps of other groups, too. */
void ln_sync_consider(ln_sync_server *server, sync_group *group);
/* Closes the open steps of all groups that have enough commits, until no more steps can be closed. */
void ln_sync_consider_all(ln_sync_server *server);
/* Makes the member's group no longer wait for the member, which has left or is lost. */
void ln_sync_leave(ln_sync_server *server, sync_member *member);
/* Counts a dropped push of the member. Each step counts once, even if the push arrives several times. */
void ln_sync_count_late(ln_sync_server *server, sync_member *member, uint64_t step);
/* Makes an ACK for a member's connection due, or holds it back if staleness is bounded and the member's group is ahead.
 */
void ln_sync_acknowledge(sync_connection *c, uint64_t step, uint8_t outcome);
/* Queues the ACK that is due. The ACK stays due if the stream has no room. */
void ln_sync_send_ack(sync_connection *c);

#endif
