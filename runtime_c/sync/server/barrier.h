/* barrier.h - when a step closes, and who is told. */
#ifndef LN_SYNC_BARRIER_H
#define LN_SYNC_BARRIER_H

#include "sync/server/server.h"

void ln_sync_consider(ln_sync_server *server, sync_group *group); /* closes the group's step if it is due */
void ln_sync_consider_all(ln_sync_server *server);
void ln_sync_leave(ln_sync_server *server, sync_member *member); /* its group no longer waits for it */
void ln_sync_count_late(ln_sync_server *server, sync_member *member, uint64_t step); /* counts each step once */
void ln_sync_acknowledge(sync_connection *c, uint64_t step, uint8_t outcome);
void ln_sync_send_ack(sync_connection *c);

#endif
