/* test_sync_edges.c - a journal's record is on the disk before it counts: fdatasync, which this program puts in the C
 * library's place, is called once per record, and its failure is one of the append. And weights at the ends of their
 * range. */
#define _GNU_SOURCE
#include "check.h"

#include "sync/posix_journal.h"
#include "sync/wire.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int synced, synced_at, fails;

/* The one of the C library is not linked: this one is there first. */
int fdatasync(int fd) {
    struct stat info;
    synced++;
    if (fstat(fd, &info) == 0) synced_at = (int)info.st_size;
    if (!fails) return (int)syscall(SYS_fdatasync, fd);
    errno = EIO;
    return -1;
}

static void durable(void) {
    char folder[] = "/tmp/linnet-test-XXXXXX", path[64];
    char bytes[100];
    const ln_sync_slice parts[2] = {{bytes, 40}, {bytes + 40, 60}};
    linnet_error error;
    memset(bytes, 'x', sizeof bytes);
    CHECK(mkdtemp(folder) != NULL);
    for (int durable = 0; durable < 2; durable++) {
        ln_sync_journal *journal = NULL;
        snprintf(path, sizeof path, "%s/journal%d", folder, durable);
        CHECK_INT(ln_sync_journal_open(path, "0123456789abcdef0123456789abcdef", durable, &journal, &error), LINNET_OK);
        if (!journal) return;
        synced = 0;
        for (int i = 1; i <= 3; i++) {
            CHECK_INT(ln_sync_journal_append(journal, parts, 2, &error), LINNET_OK);
            CHECK_INT(synced, durable ? i : 0);
            if (durable) CHECK_INT(synced_at, ln_sync_journal_size(journal)); /* after the bytes, not before */
        }
        const uint64_t size = ln_sync_journal_size(journal);
        fails = 1;
        CHECK_INT(ln_sync_journal_append(journal, parts, 2, &error), durable ? LINNET_WRITE_FAILED : LINNET_OK);
        fails = 0;
        struct stat info;
        CHECK_INT(stat(path, &info), 0);
        CHECK_INT(info.st_size, ln_sync_journal_size(journal)); /* what does not count is cut off */
        CHECK_INT(ln_sync_journal_size(journal) == size, durable);
        ln_sync_journal_free(journal);
        unlink(path);
    }
    rmdir(folder);
}

static bool taken(double weight, uint32_t pushes, uint32_t flags) {
    const ln_sync_commit commit = {.pushes = pushes, .flags = flags, .weight = weight};
    unsigned char bytes[LN_SYNC_COMMIT_BYTES];
    ln_sync_commit read;
    ln_sync_commit_write(&commit, bytes);
    return ln_sync_commit_read(&read, bytes, sizeof bytes);
}

static void weights(void) {
    CHECK(taken(1, 1, 0));
    CHECK(taken(1e-300, 1, LN_SYNC_COMMIT_PULL));
    CHECK(!taken(INFINITY, 1, 0));
    CHECK(!taken(-INFINITY, 1, 0));
    CHECK(!taken(NAN, 1, 0));
    CHECK(!taken(0, 1, 0));
    CHECK(!taken(-0.0, 1, 0));
    CHECK(!taken(-1, 1, 0));
    CHECK(taken(0, 0, LN_SYNC_COMMIT_ABANDON));
    CHECK(!taken(1, 0, LN_SYNC_COMMIT_ABANDON));
    CHECK(!taken(0, 1, LN_SYNC_COMMIT_ABANDON));
    CHECK(!taken(1, 1, 4));
}

int main(void) {
    durable();
    weights();
    return check_end("test_sync_edges");
}
