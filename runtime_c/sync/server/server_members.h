/* server_members.h - the members and groups of a server. */
#ifndef LN_SYNC_SERVER_MEMBERS_H
#define LN_SYNC_SERVER_MEMBERS_H

#include "sync/server/server.h"

/* These functions return NULL if there is no such entry, or no memory to create it. Creating a member may remove
 * another member and its group, so look up groups afterwards. */
sync_member *ln_sync_member(ln_sync_server *server, uint32_t id, bool make);
sync_group *ln_sync_group(ln_sync_server *server, uint32_t id, bool make);
bool ln_sync_enter_group(sync_group *group, sync_member *member);
void ln_sync_free_member(ln_sync_server *server, sync_member *member);
void ln_sync_free_group(ln_sync_server *server, sync_group *group);
void ln_sync_discard(ln_sync_server *server, sync_member *member, bool free_memory); /* drops its pushes of the step */
void ln_sync_count_group(sync_group *group);
uint64_t ln_sync_slowest(const ln_sync_server *server);

#endif
