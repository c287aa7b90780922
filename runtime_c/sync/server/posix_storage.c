/* posix_storage.c - a server's folder: its lock, epoch and snapshot. posix_journal.c has the journal.
 * To replace a file, it writes a new file in the same folder, syncs it, and renames it. */
#define _DEFAULT_SOURCE
#include "sync/server/posix_storage.h"

#include "net/error.h"
#include "sync/server/posix_files.h"
#include "sync/server/posix_journal.h"
#include "sync/server/record.h"
#include "sync/server/server_core.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct ln_sync_folder {
    char *path;
    int lock;
    uint64_t epoch;
    linnet_sync_durability durability;
    linnet_store *store;
    const linnet_model *model;
    ln_sync_journal *journal;
};

/* Returns "<folder>/<name>", which the caller frees. */
static char *inside(const char *folder, const char *name) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static linnet_status no_memory(linnet_error *error) {
    return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to use the server's folder");
}

static linnet_status take_lock(ln_sync_folder *f, linnet_error *error) {
    char *path = inside(f->path, "lock"), holder[32] = "";
    linnet_status status = LINNET_OK;
    if (!path) return no_memory(error);
    f->lock = ln_sync_file_open(path, O_RDWR | O_CREAT);
    if (f->lock < 0) {
        status = ln_sync_file_failed("cannot create the lock of the server's folder", path, error);
    } else if (flock(f->lock, LOCK_EX | LOCK_NB)) {
        const ssize_t n = pread(f->lock, holder, sizeof holder - 1, 0);
        holder[n > 0 ? n : 0] = 0;
        ln_sync_fail(error, LINNET_SUPERSEDED, "another server uses this folder");
        ln_sync_at(error, f->path);
        ln_sync_got(error, "process %.20s", holder[0] ? holder : "with an unknown number");
        status = (ln_sync_hint(error, "end that server first, or give this one its own folder"), LINNET_SUPERSEDED);
    } else {
        const int n = snprintf(holder, sizeof holder, "%ld", (long)getpid());
        if (ftruncate(f->lock, 0) || pwrite(f->lock, holder, (size_t)n, 0) != n)
            status = ln_sync_file_failed("cannot write the lock of the server's folder", path, error);
    }
    free(path);
    return status;
}

/* Epochs are times, so they are above all earlier epochs, even those of deleted folders. */
uint64_t ln_sync_fresh_epoch(uint64_t last) {
    struct timespec time;
    uint64_t ms;
    clock_gettime(CLOCK_REALTIME, &time);
    ms = (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
    return ms > last ? ms : last + 1;
}

static linnet_status raise_epoch(ln_sync_folder *f, linnet_error *error) {
    char *path = inside(f->path, "epoch"), text[32] = "";
    uint64_t last = 0;
    linnet_status status = LINNET_OK;
    int fd;
    if (!path) return no_memory(error);
    fd = ln_sync_file_open(path, O_RDONLY);
    if (fd < 0 && errno != ENOENT) {
        status = ln_sync_file_failed("cannot read the epoch of the server's folder", path, error);
    } else if (fd >= 0) {
        const ssize_t n = read(fd, text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        close(fd);
        if (sscanf(text, "%" SCNu64, &last) != 1 || last > UINT64_MAX / 2) {
            ln_sync_fail(error, LINNET_CORRUPT, "cannot read the epoch of the server's folder");
            ln_sync_at(error, path);
            status =
                (ln_sync_hint(
                     error, "write a number into this file; it must be larger than all earlier epochs of this server"),
                 LINNET_CORRUPT);
        }
    }
    f->epoch = ln_sync_fresh_epoch(last);
    snprintf(text, sizeof text, "%" PRIu64 "\n", f->epoch);
    if (!status) status = ln_sync_file_replace(f->path, path, text, error);
    free(path);
    return status;
}

linnet_status ln_sync_folder_open(const char *path, linnet_sync_durability durability, linnet_store *store,
                                  const linnet_model *model, ln_sync_folder **out, linnet_error *error) {
    ln_sync_folder *f = calloc(1, sizeof *f);
    char *journal = inside(path, "journal");
    linnet_status status;
    *out = NULL;
    if (f) f->path = inside(path, ""), f->lock = -1;
    if (!f || !f->path || !journal) {
        ln_sync_folder_free(f);
        free(journal);
        return no_memory(error);
    }
    f->path[strlen(f->path) - 1] = 0;
    f->durability = durability;
    f->store = store;
    f->model = model;
    status = mkdir(path, 0777) && errno != EEXIST
                 ? ln_sync_file_failed("cannot create the server's folder", path, error)
                 : take_lock(f, error);
    if (!status) status = raise_epoch(f, error);
    if (!status)
        status = ln_sync_journal_open(journal, linnet_model_metadata(model, "digest"), durability == LINNET_SYNC_FSYNC,
                                      &f->journal, error);
    free(journal);
    if (!status) ln_sync_folder_sync(f->path); /* syncs the journal's directory entry */
    if (status) {
        ln_sync_folder_free(f);
        return status;
    }
    *out = f;
    return LINNET_OK;
}

void ln_sync_folder_free(ln_sync_folder *f) {
    if (!f) return;
    ln_sync_journal_free(f->journal);
    if (f->lock >= 0) close(f->lock);
    free(f->path);
    free(f);
}

uint64_t ln_sync_folder_epoch(const ln_sync_folder *f) { return f->epoch; }

uint64_t ln_sync_folder_journal(const ln_sync_folder *f) { return ln_sync_journal_size(f->journal); }

/* ---- snapshot ---------------------------------------------------------------------------------------------------- */

/* Adds the file name to an error that is about a part of the snapshot. */
static linnet_status spoiled(const char *path, linnet_error *error) {
    const linnet_error found = *error;
    if (strncmp(found.tensor, path, sizeof found.tensor - 1)) {
        ln_sync_at(error, path);
        ln_sync_got(error, "%.40s: %.54s", found.tensor, found.got);
    }
    return ln_sync_hint(error,
                        "restore a copy of the file; --repair cannot help, because the journal builds on the snapshot");
}

static linnet_status load_snapshot(ln_sync_folder *f, const char *path, ln_sync_server *server, linnet_error *error) {
    linnet_model *kept = NULL;
    const char *table;
    linnet_status status;
    if (ln_sync_file_is_strange(path))
        return ln_sync_file_failed("cannot read the snapshot of the server's folder", path, error);
    if (access(path, F_OK)) return LINNET_OK;
    status = linnet_model_open(path, NULL, &kept, error);
    if (status == LINNET_CORRUPT && error) spoiled(path, error);
    if (status) return status;
    table = linnet_model_metadata(kept, "sync.table");
    status = linnet_store_load(f->store, path, error);
    if (!status && !table) {
        status = ln_sync_fail(error, LINNET_OTHER_MODEL, "this checkpoint is not the snapshot of a server");
        ln_sync_at(error, path);
    }
    if (!status) status = ln_sync_server_restore(server, table, error);
    linnet_model_free(kept);
    if (status == LINNET_CORRUPT && error) spoiled(path, error);
    return status;
}

linnet_status ln_sync_folder_restore(ln_sync_folder *f, ln_sync_server *server, bool repair, linnet_error *error) {
    char name[64], *snapshot = inside(f->path, "snapshot.lnt"), *aside;
    uint64_t left_out = 0;
    linnet_status status;
    snprintf(name, sizeof name, "journal.damaged-%" PRIu64, f->epoch);
    aside = inside(f->path, name);
    status = snapshot && aside ? load_snapshot(f, snapshot, server, error) : no_memory(error);
    if (!status) status = ln_sync_journal_replay(f->journal, server, repair, aside, &left_out, error);
    if (left_out) ln_sync_folder_sync(f->path); /* syncs the directory entry of the copy */
    ln_sync_server_left_out(server, left_out);
    free(snapshot);
    free(aside);
    return status;
}

static linnet_status save(void *context, const char *table, char *where, size_t size, linnet_error *error) {
    ln_sync_folder *f = context;
    const char *const metadata[] = {"sync.table", table};
    linnet_checkpoint_config config;
    char *path = inside(f->path, "snapshot.lnt");
    linnet_status status;
    if (!path) return no_memory(error);
    linnet_checkpoint_config_init(&config);
    config.metadata = metadata;
    config.metadata_count = 1;
    status = linnet_store_save(f->store, path, &config, error);
    snprintf(where, size, "%s", path);
    free(path);
    return status ? status : ln_sync_journal_clear(f->journal, error);
}

static linnet_status append(void *context, const ln_net_slice *parts, int count, linnet_error *error) {
    ln_sync_folder *f = context;
    return ln_sync_journal_append(f->journal, parts, count, error);
}

ln_sync_storage ln_sync_folder_storage(ln_sync_folder *f) {
    const ln_sync_storage storage = {f, f->durability == LINNET_SYNC_VOLATILE ? NULL : append, save};
    return storage;
}
