/* posix_poller.h - finds which of many descriptors are ready. Uses epoll if the system has it, otherwise poll.
 * Level-triggered; masks are LN_SYNC_READ and LN_SYNC_WRITE of transport.h. */
#ifndef LN_SYNC_POSIX_POLLER_H
#define LN_SYNC_POSIX_POLLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ln_sync_poller ln_sync_poller;

typedef struct ln_sync_event {
    void *user;
    int mask; /* READ is also set if the peer has closed or failed; a read then reports this */
} ln_sync_event;

ln_sync_poller *ln_sync_poller_new(void); /* NULL: out of memory or descriptors */
void ln_sync_poller_free(ln_sync_poller *poller);
bool ln_sync_poller_add(ln_sync_poller *poller, int fd, int mask, void *user);
bool ln_sync_poller_change(ln_sync_poller *poller, int fd, int mask, void *user);
void ln_sync_poller_remove(ln_sync_poller *poller, int fd);
/* Waits for at most timeout_ms (0: does not wait). Fills at most `room` entries and returns the number of filled
 * entries. */
int ln_sync_poller_wait(ln_sync_poller *poller, ln_sync_event *ready, int room, int timeout_ms);

#endif
