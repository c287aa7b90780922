/* posix_poller.c - finds which of many descriptors are ready. With LN_NET_POLL defined, it uses poll even if the
 * system has epoll; this is for tests. */
#define _DEFAULT_SOURCE
#include "net/posix_poller.h"

#include "net/transport.h"

#include <stdlib.h>
#include <unistd.h>

#if defined(__linux__) && !defined(LN_NET_POLL)
#include <sys/epoll.h>

struct ln_net_poller {
    int fd;
};

ln_net_poller *ln_net_poller_new(void) {
    ln_net_poller *p = malloc(sizeof *p);
    if (!p) return NULL;
    p->fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->fd >= 0) return p;
    free(p);
    return NULL;
}

void ln_net_poller_free(ln_net_poller *p) {
    if (!p) return;
    close(p->fd);
    free(p);
}

static bool control(ln_net_poller *p, int what, int fd, int mask, void *user) {
    struct epoll_event event = {.data.ptr = user};
    event.events = (mask & LN_NET_READ ? EPOLLIN : 0u) | (mask & LN_NET_WRITE ? EPOLLOUT : 0u);
    return epoll_ctl(p->fd, what, fd, &event) == 0;
}

bool ln_net_poller_add(ln_net_poller *p, int fd, int mask, void *user) {
    return control(p, EPOLL_CTL_ADD, fd, mask, user);
}

bool ln_net_poller_change(ln_net_poller *p, int fd, int mask, void *user) {
    return control(p, EPOLL_CTL_MOD, fd, mask, user);
}

void ln_net_poller_remove(ln_net_poller *p, int fd) { control(p, EPOLL_CTL_DEL, fd, 0, NULL); }

int ln_net_poller_wait(ln_net_poller *p, ln_net_event *ready, int room, int timeout_ms) {
    struct epoll_event events[64];
    const int n = epoll_wait(p->fd, events, room < 64 ? room : 64, timeout_ms);
    for (int i = 0; i < n; i++) {
        ready[i].user = events[i].data.ptr;
        ready[i].mask = (events[i].events & EPOLLOUT ? LN_NET_WRITE : 0) |
                        (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? LN_NET_READ : 0);
    }
    return n < 0 ? 0 : n;
}

#else
#include <poll.h>

struct ln_net_poller {
    struct pollfd *fds;
    void **users;
    int count, room, next; /* next: index at which the last wait stopped, so that all descriptors get their turn */
};

ln_net_poller *ln_net_poller_new(void) { return calloc(1, sizeof(ln_net_poller)); }

void ln_net_poller_free(ln_net_poller *p) {
    if (!p) return;
    free(p->fds);
    free(p->users);
    free(p);
}

static int find(const ln_net_poller *p, int fd) {
    int i = 0;
    while (i < p->count && p->fds[i].fd != fd) i++;
    return i < p->count ? i : -1;
}

bool ln_net_poller_change(ln_net_poller *p, int fd, int mask, void *user) {
    const int i = find(p, fd);
    if (i < 0) return false;
    p->fds[i].events = (short)((mask & LN_NET_READ ? POLLIN : 0) | (mask & LN_NET_WRITE ? POLLOUT : 0));
    p->users[i] = user;
    return true;
}

bool ln_net_poller_add(ln_net_poller *p, int fd, int mask, void *user) {
    if (p->count == p->room) {
        const int room = p->room ? 2 * p->room : 16;
        struct pollfd *fds = realloc(p->fds, (size_t)room * sizeof *fds);
        if (fds) p->fds = fds;
        void **users = fds ? realloc(p->users, (size_t)room * sizeof *users) : NULL;
        if (!users) return false;
        p->users = users;
        p->room = room;
    }
    p->fds[p->count].fd = fd;
    p->fds[p->count++].revents = 0;
    return ln_net_poller_change(p, fd, mask, user);
}

void ln_net_poller_remove(ln_net_poller *p, int fd) {
    const int i = find(p, fd);
    if (i < 0) return;
    p->fds[i] = p->fds[--p->count];
    p->users[i] = p->users[p->count];
}

int ln_net_poller_wait(ln_net_poller *p, ln_net_event *ready, int room, int timeout_ms) {
    int n = 0;
    if (poll(p->fds, (nfds_t)p->count, timeout_ms) <= 0) return 0;
    for (int k = 0; k < p->count && n < room; k++) {
        const int i = (p->next + k) % p->count;
        if (!p->fds[i].revents) continue;
        ready[n].user = p->users[i];
        ready[n++].mask = (p->fds[i].revents & POLLOUT ? LN_NET_WRITE : 0) |
                          (p->fds[i].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL) ? LN_NET_READ : 0);
    }
    p->next = p->count ? (p->next + 1) % p->count : 0;
    return n;
}
#endif
