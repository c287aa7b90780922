/* server_members.h - the members and groups of a server. */
#ifndef LN_SYNC_SERVER_MEMBERS_H
#define LN_SYNC_SERVER_MEMBERS_H

#include "sync/server/server.h"

/* Return the member or the group with this id, and create it if it does not exist and `make` is set. Return NULL if it
 * does not exist and cannot be created: out of memory, or too many groups. Creating a member may free another member
 * and its group, so earlier pointers to groups are then invalid. */
sync_member *ln_sync_member(ln_sync_server *server, uint32_t id, bool make);
sync_group *ln_sync_group(ln_sync_server *server, uint32_t id, bool make);
/* Moves a member to the group. Returns false, and changes nothing, if out of memory. */
bool ln_sync_enter_group(sync_group *group, sync_member *member);
/* Free a member or a group. The caller removes it from its table. */
void ln_sync_free_member(ln_sync_server *server, sync_member *member);
void ln_sync_free_group(ln_sync_server *server, sync_group *group);
/* Drops the member's pushes of the open step. Without `free_memory`, their buffers are used again in the next step. */
void ln_sync_discard(ln_sync_server *server, sync_member *member, bool free_memory);
/* Counts live, awaited, committed and finite members of the group again, after a member has changed. */
void ln_sync_count_group(sync_group *group);
/* Returns the open step of the slowest group that has live members; 0 if there is no such group. */
uint64_t ln_sync_slowest(const ln_sync_server *server);

#endif
