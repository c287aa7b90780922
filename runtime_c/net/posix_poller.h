/* posix_poller.h - finds which of many descriptors are ready. The poller uses epoll if the system has it, otherwise
 * poll. The poller is level-triggered: a descriptor is reported by each wait until it is no longer ready. A mask is a
 * sum of LN_NET_READ and LN_NET_WRITE of transport.h. */
#ifndef LN_NET_POSIX_POLLER_H
#define LN_NET_POSIX_POLLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ln_net_poller ln_net_poller;

typedef struct ln_net_event {
    void *user; /* the pointer that was given to add or change */
    int mask;   /* LN_NET_READ is also set if the peer has closed or the connection failed; a read then reports this */
} ln_net_event;

/* Returns NULL if out of memory or descriptors. */
ln_net_poller *ln_net_poller_new(void);
/* Frees the poller, but does not close the descriptors that were added. NULL does nothing. */
void ln_net_poller_free(ln_net_poller *poller);
/* Begins to watch `fd`, which must not be watched yet. Returns false if out of memory, or if the system refuses. */
bool ln_net_poller_add(ln_net_poller *poller, int fd, int mask, void *user);
/* Replaces the mask and the user pointer of a watched `fd`. Returns false if `fd` is not watched. */
bool ln_net_poller_change(ln_net_poller *poller, int fd, int mask, void *user);
/* Stops watching `fd`. Call this before the descriptor is closed. */
void ln_net_poller_remove(ln_net_poller *poller, int fd);
/* Waits until a watched descriptor is ready, but for at most timeout_ms (0: does not wait; -1: no limit). Fills at most
 * `room` entries and returns their number. Returns 0 after the timeout, and also if a signal or an error ends the wait.
 */
int ln_net_poller_wait(ln_net_poller *poller, ln_net_event *ready, int room, int timeout_ms);

#endif
