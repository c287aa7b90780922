/* host_client.c - who is connected to a host. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_client.h"

#include "remote/host_memory.h"
#include "remote/host_outbox.h"
#include "remote/host_peer.h"
#include "remote/host_piece.h"

#include <stdlib.h>
#include <string.h>

static host_client *find(const ln_host *host, const unsigned char *token) {
    host_client *client = host->clients;
    while (client != NULL && memcmp(client->token, token, LN_REMOTE_TOKEN) != 0) client = client->next;
    return client;
}

static host_client *make(ln_host *host, const unsigned char *token) {
    host_client *client = calloc(1, sizeof *client);
    if (client == NULL) return NULL;
    memcpy(client->token, token, LN_REMOTE_TOKEN);
    pthread_mutex_init(&client->lock, NULL);
    pthread_mutex_init(&client->work, NULL);
    pthread_cond_init(&client->moved, NULL);
    client->next = host->clients, host->clients = client;
    return client;
}

bool ln_host_hello(host_connection *c, const unsigned char token[LN_REMOTE_TOKEN]) {
    ln_host *host = c->host;
    pthread_mutex_lock(&host->lock);
    host_client *client = find(host, token);
    if (client == NULL) client = make(host, token);
    if (client != NULL) {
        client->connections++, client->users++;
        c->number = ++host->last_number;
        pthread_mutex_lock(&client->lock);
        c->next = client->own, client->own = c;
        pthread_mutex_unlock(&client->lock);
    }
    c->client = client;
    pthread_mutex_unlock(&host->lock);
    return client != NULL;
}

bool ln_host_join(host_connection *c, const unsigned char token[LN_REMOTE_TOKEN]) {
    ln_host *host = c->host;
    pthread_mutex_lock(&host->lock);
    c->client = find(host, token);
    c->joined = true;
    if (c->client != NULL) {
        c->client->users++;
        c->number = ++host->last_number;
    }
    pthread_mutex_unlock(&host->lock);
    return c->client != NULL;
}

/* Takes a client out of the host's list. Other hosts' connections see that it is gone, and end. */
static void forget(ln_host *host, host_client *client) {
    host_client **at = &host->clients;
    while (*at != client) at = &(*at)->next;
    *at = client->next;
    pthread_mutex_lock(&client->lock);
    client->gone = true;
    pthread_cond_broadcast(&client->moved);
    pthread_mutex_unlock(&client->lock);
}

static void leave_own(host_connection *c) {
    ln_host *host = c->host;
    host_client *client = c->client;
    ln_host_peers_free(c);
    pthread_mutex_lock(&client->lock);
    host_connection **at = &client->own;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    ln_host_outbox_free(c);
    pthread_cond_broadcast(&client->moved);
    pthread_mutex_unlock(&client->lock);
    pthread_mutex_lock(&host->lock);
    const bool last = --client->connections == 0;
    if (last) forget(host, client);
    pthread_mutex_unlock(&host->lock);
    if (!last) return;
    ln_host_unprepare_all(host, client);
    ln_host_release_all(host, client);
}

void ln_host_leave(host_connection *c) {
    host_client *client = c->client;
    if (client == NULL) return;
    if (!c->joined) leave_own(c);
    pthread_mutex_lock(&c->host->lock);
    const bool last = --client->users == 0;
    pthread_mutex_unlock(&c->host->lock);
    if (!last) return;
    pthread_mutex_destroy(&client->lock);
    pthread_mutex_destroy(&client->work);
    pthread_cond_destroy(&client->moved);
    free(client);
}
