/* host_wait.c - how the work of a host waits for something that another host or another connection does. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_wait.h"

#include "net/error.h"
#include "remote/clock.h"

#include <time.h>

int64_t ln_host_wait_end(const host_connection *c, int64_t most_ms) {
    const double timeout = 1000 * c->host->config.timeout;
    if (timeout > 0 && (most_ms == 0 || timeout < (double)most_ms)) most_ms = timeout < 1e15 ? (int64_t)timeout + 1 : 0;
    return most_ms > 0 ? ln_remote_now_ms() + most_ms : INT64_MAX;
}

linnet_status ln_host_wait_look(host_connection *c, int64_t end, linnet_error *error) {
    if (atomic_load(&c->host->stopping)) return ln_sync_fail(error, LINNET_CANCELLED, "the host is stopped");
    if (ln_remote_now_ms() >= end) {
        ln_sync_fail(error, LINNET_TIMED_OUT, "the host has waited for another host for longer than its time limit");
        return ln_sync_hint(error, "raise --timeout of linnet-host, or see why the other host is late");
    }
    pthread_mutex_lock(&c->client->lock);
    const bool gone = c->client->gone;
    pthread_mutex_unlock(&c->client->lock);
    if (gone) return ln_sync_fail(error, LINNET_CONNECTION_LOST, "the client has ended");
    return c->link != NULL ? ln_remote_link_turn(c->link, 0, error) : LINNET_OK;
}

void ln_host_wait_moved(const host_connection *c) {
    struct timespec until;
    if (atomic_load(&c->host->stopping)) return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LN_HOST_TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&c->client->moved, &c->client->lock, &until);
}

void ln_host_wait_begins(host_connection *c) { pthread_mutex_unlock(&c->client->work); }
void ln_host_wait_ends(host_connection *c) { pthread_mutex_lock(&c->client->work); }
