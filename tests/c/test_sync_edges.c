/* test_sync_edges.c - a journal record is on the disk before it counts. This program replaces the C library's fdatasync
 * to check that it is called once per record, and that its failure fails the append. Also tests weights at the limits
 * of their range. */
#define _GNU_SOURCE
#include "check.h"

#include "net/frame.h"
#include "sync/codec/messages.h"
#include "sync/codec/payload.h"
#include "sync/common/rows.h"
#include "sync/server/posix_journal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int synced, synced_at, fails;

/* Replaces the C library's function, because it is linked first. */
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
    const ln_net_slice parts[2] = {{bytes, 40}, {bytes + 40, 60}};
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
            if (durable) CHECK_INT(synced_at, ln_sync_journal_size(journal)); /* synced after the write, not before */
        }
        const uint64_t size = ln_sync_journal_size(journal);
        fails = 1;
        CHECK_INT(ln_sync_journal_append(journal, parts, 2, &error), durable ? LINNET_WRITE_FAILED : LINNET_OK);
        fails = 0;
        struct stat info;
        CHECK_INT(stat(path, &info), 0);
        CHECK_INT(info.st_size, ln_sync_journal_size(journal)); /* records that do not count are cut off */
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

static ln_net_refusal piece(uint64_t total, uint64_t offset, uint32_t length) {
    const ln_net_header made = {.version = 1, .type = LN_SYNC_PUSH, .total = total, .offset = offset, .length = length};
    unsigned char bytes[LN_NET_HEADER];
    ln_net_header read;
    ln_net_header_write(&made, bytes);
    return ln_net_header_read(&read, bytes, &ln_sync_protocol);
}

/* A chunk must not extend beyond its message. */
static void pieces(void) {
    CHECK_INT(piece(100, 0, 100), LN_NET_FINE);
    CHECK_INT(piece(100, 60, 40), LN_NET_FINE);
    CHECK_INT(piece(0, 0, 0), LN_NET_FINE);
    CHECK_INT(piece(100, 60, 41), LN_NET_MALFORMED);
    CHECK_INT(piece(100, 0, 101), LN_NET_MALFORMED);
    CHECK_INT(piece(100, 101, 0), LN_NET_MALFORMED);
    CHECK_INT(piece(100, 40, 0), LN_NET_MALFORMED);
    CHECK_INT(piece(100, UINT64_MAX - 10, 20), LN_NET_MALFORMED);
}

static size_t tensor(uint64_t rows, uint64_t columns, uint64_t first, uint64_t whole) {
    ln_sync_tensor made, read;
    unsigned char bytes[512];
    memset(&made, 0, sizeof made);
    made.dtype = LINNET_F32;
    made.rank = 2;
    made.name_size = 1;
    made.name[0] = 'w';
    made.dims[0] = rows;
    made.dims[1] = columns;
    made.first_row = first;
    made.rows = whole;
    return ln_sync_tensor_read(&read, bytes, ln_sync_tensor_write(&made, bytes));
}

/* The number of elements must not overflow, and a part must be within the whole. */
static void tensors(void) {
    CHECK(tensor(10, 3, 0, 10) > 0);
    CHECK(tensor(10, 3, 20, 30) > 0);
    CHECK_INT(tensor(10, 3, 21, 30), 0);
    CHECK_INT(tensor(10, 3, UINT64_MAX - 4, 30), 0);
    CHECK_INT(tensor(10, 3, 0, 9), 0);
    CHECK_INT(tensor((uint64_t)1 << 40, (uint64_t)1 << 40, 0, (uint64_t)1 << 40), 0);
    CHECK_INT(tensor((uint64_t)1 << 32, (uint64_t)1 << 32, 0, (uint64_t)1 << 32), 0);
    CHECK(tensor((uint64_t)1 << 29, (uint64_t)1 << 30, 0, (uint64_t)1 << 29) > 0);
}

/* If any weight is not 1, all rows are multiplied by their weights. */
static void weighted_rows(void) {
    for (int which = 0; which < 3; which++) {
        float values[3] = {1, 10, 100}, out[3] = {0};
        int64_t ids[3] = {4, 4, 4}, found[3];
        ln_sync_rows_place places[6];
        ln_sync_rows_part parts[3];
        double expected = 0;
        for (int i = 0; i < 3; i++) {
            parts[i] =
                (ln_sync_rows_part){.ids = &ids[i], .rows = &values[i], .count = 1, .weight = i == which ? 3 : 1};
            expected += parts[i].weight * (double)values[i];
        }
        CHECK_INT(ln_sync_rows_sum(parts, 3, 1, false, 5, places, found, out), 1);
        CHECK(found[0] == 4 && fabs((double)out[0] - expected / 5) < 1e-5);
    }
}

int main(void) {
    durable();
    weights();
    pieces();
    tensors();
    weighted_rows();
    return check_end("test_sync_edges");
}
