/* host_memory.c - the memory of a host's clients. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_memory.h"

#include "net/error.h"

#include <stdlib.h>
#include <string.h>

static void *take(void *context, size_t size, size_t alignment) {
    ln_host *host = context;
    void *memory = NULL;
    const uint64_t before = atomic_fetch_add(&host->used, size);
    const bool fits = host->config.max_bytes == 0 || before + size <= host->config.max_bytes;
    if (!fits || posix_memalign(&memory, alignment > sizeof(void *) ? alignment : sizeof(void *), size) != 0) {
        atomic_fetch_sub(&host->used, size);
        return NULL;
    }
    return memory;
}

static void give_back(void *context, void *memory, size_t size) {
    ln_host *host = context;
    if (memory != NULL) atomic_fetch_sub(&host->used, size);
    free(memory);
}

linnet_allocator ln_host_allocator(ln_host *host) {
    return (linnet_allocator){.context = host, .alloc = take, .free = give_back};
}

static host_buffer *find(host_client *client, uint64_t id) {
    for (int i = 0; i < client->buffer_count; i++)
        if (client->buffers[i].id == id) return &client->buffers[i];
    return NULL;
}

linnet_status ln_host_no_memory(const ln_host *host, uint64_t bytes, linnet_error *error) {
    ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host does not lend so much memory");
    if (host->config.max_bytes > 0)
        ln_sync_expected(error, "at most %llu bytes for all clients", (unsigned long long)host->config.max_bytes);
    ln_sync_got(error, "%llu bytes more than the %llu that are in use", (unsigned long long)bytes,
                (unsigned long long)atomic_load(&host->used));
    return ln_sync_hint(error, "start linnet-host with a larger --max-bytes, or place less of the model on it");
}

linnet_status ln_host_allocate(ln_host *host, host_client *client, uint64_t id, uint64_t bytes, linnet_error *error) {
    linnet_status status = LINNET_OK;
    pthread_mutex_lock(&client->lock);
    if (client->buffer_count == client->buffer_room) {
        const int room = 2 * client->buffer_room + 8;
        host_buffer *grown = realloc(client->buffers, (size_t)room * sizeof *grown);
        if (grown != NULL) client->buffers = grown, client->buffer_room = room;
    }
    void *memory =
        client->buffer_count < client->buffer_room && bytes < SIZE_MAX / 2 ? take(host, (size_t)bytes + 64, 64) : NULL;
    if (find(client, id) != NULL) {
        status = ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client gave the same number to two buffers");
        if (memory != NULL) give_back(host, memory, (size_t)bytes + 64);
    } else if (memory == NULL) {
        status = ln_host_no_memory(host, bytes, error);
    } else {
        memset(memory, 0, (size_t)bytes + 64); /* another client's values may have been there */
        client->buffers[client->buffer_count++] = (host_buffer){.id = id, .bytes = bytes, .memory = memory};
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

linnet_status ln_host_release(ln_host *host, host_client *client, uint64_t id, linnet_error *error) {
    linnet_status status = LINNET_OK;
    pthread_mutex_lock(&client->lock);
    host_buffer *found = find(client, id);
    if (found != NULL && found->users > 0) {
        status = ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client released a buffer that a piece is bound to");
    } else if (found != NULL) {
        give_back(host, found->memory, (size_t)found->bytes + 64);
        *found = client->buffers[--client->buffer_count];
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

bool ln_host_use(host_client *client, uint64_t id, int change) {
    pthread_mutex_lock(&client->lock);
    host_buffer *found = find(client, id);
    if (found != NULL) found->users += change;
    pthread_mutex_unlock(&client->lock);
    return found != NULL;
}

void ln_host_release_all(ln_host *host, host_client *client) {
    for (int i = 0; i < client->buffer_count; i++)
        give_back(host, client->buffers[i].memory, (size_t)client->buffers[i].bytes + 64);
    free(client->buffers);
    client->buffers = NULL, client->buffer_count = client->buffer_room = 0;
}

unsigned char *ln_host_span(host_client *client, uint64_t id, uint64_t offset, uint64_t bytes, linnet_error *error) {
    pthread_mutex_lock(&client->lock);
    const host_buffer *found = find(client, id);
    unsigned char *memory =
        found != NULL && offset <= found->bytes && bytes <= found->bytes - offset ? found->memory + offset : NULL;
    pthread_mutex_unlock(&client->lock);
    if (memory == NULL) {
        ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client named memory that it does not have");
        ln_sync_got(error, "%llu bytes at %llu of buffer %llu", (unsigned long long)bytes, (unsigned long long)offset,
                    (unsigned long long)id);
    }
    return memory;
}
