/* posix_poller.h - finds which of many descriptors are ready. Uses epoll if the system has it, otherwise poll.
 * Level-triggered; masks are LN_NET_READ and LN_NET_WRITE of transport.h. */
#ifndef LN_NET_POSIX_POLLER_H
#define LN_NET_POSIX_POLLER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ln_net_poller ln_net_poller;

typedef struct ln_net_event {
    void *user;
    int mask; /* READ is also set if the peer has closed or failed; a read then reports this */
} ln_net_event;

ln_net_poller *ln_net_poller_new(void); /* NULL: out of memory or descriptors */
void ln_net_poller_free(ln_net_poller *poller);
bool ln_net_poller_add(ln_net_poller *poller, int fd, int mask, void *user);
bool ln_net_poller_change(ln_net_poller *poller, int fd, int mask, void *user);
void ln_net_poller_remove(ln_net_poller *poller, int fd);
/* Waits for at most timeout_ms (0: does not wait). Fills at most `room` entries and returns the number of filled
 * entries. */
int ln_net_poller_wait(ln_net_poller *poller, ln_net_event *ready, int room, int timeout_ms);

#endif
