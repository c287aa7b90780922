/* test_sync_journal.c - the journal's frames. Changes every byte of a file of several pages in several ways, and tries
 * every length that a kill can leave and every page that can be missing. Checks which changes count as an unfinished
 * write and which as damage. */
#define _GNU_SOURCE
#include "check.h"

#include "sync/server/journal_frame.h"
#include "sync/server/posix_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOM = 1 << 17, RECORDS = 12, PAGE = LN_SYNC_JOURNAL_PAGE };

static unsigned char file[ROOM], changed[ROOM];
static uint64_t starts[RECORDS + 1], lengths[RECORDS];
static int records;

static void clear(void) {
    memset(file, 0, sizeof file);
    memset(file, 'H', LN_SYNC_JOURNAL_HEAD);
    starts[0] = LN_SYNC_JOURNAL_HEAD;
    records = 0;
}

/* Adds a record of `size` bytes in two parts. The bytes from `zeros` on are zeros. */
static void add(size_t size, size_t zeros, uint64_t seed) {
    unsigned char *bytes = malloc(size + 1);
    const uint64_t at = starts[records];
    for (size_t i = 0; i < size; i++) bytes[i] = i < zeros ? (unsigned char)(check_random(&seed) >> 20 | 1) : 0;
    const ln_net_slice parts[2] = {{bytes, size / 3}, {bytes + size / 3, size - size / 3}};
    const uint64_t whole = ln_sync_journal_frame(parts, 2, at, file + at);
    memcpy(file + at + LN_SYNC_JOURNAL_FRAME, bytes, size);
    lengths[records++] = size;
    starts[records] = at + whole;
    CHECK(whole % LN_SYNC_JOURNAL_ALIGN == 0 && starts[records] < ROOM);
    free(bytes);
}

/* Goes through the file. Returns the number of complete records. *state receives the state of the bytes after them. */
static int walk(const unsigned char *data, uint64_t size, ln_sync_journal_state *state) {
    uint64_t at = LN_SYNC_JOURNAL_HEAD, length, next;
    for (int i = 0;; i++, at = next) {
        *state = ln_sync_journal_look(data, size, at, &length, &next);
        if (*state != LN_SYNC_JOURNAL_WHOLE) return i;
        CHECK(i < records && at == starts[i] && length == lengths[i] && next == starts[i + 1]);
    }
}

static int record_of(uint64_t at) {
    int i = 0;
    while (starts[i + 1] <= at) i++;
    return i;
}

/* Bytes from one try to the next in records of several pages: 1, or 5 where a processor is emulated or accesses are
 * checked. */
static uint64_t step = 1;

/* If any byte of a record changes, the record is damaged, no matter what follows it. */
static void flips(void) {
    static const unsigned char masks[] = {0x01, 0x80, 0xff};
    const uint64_t size = starts[records];
    for (uint64_t at = LN_SYNC_JOURNAL_HEAD; at<size; at += size> PAGE ? step : 1)
        for (size_t k = 0; k < sizeof masks + 1; k++) {
            ln_sync_journal_state state;
            const unsigned char before = file[at];
            file[at] = k < sizeof masks ? before ^ masks[k] : 0;
            if (file[at] == before) continue;
            const int whole = walk(file, size, &state);
            if (state != LN_SYNC_JOURNAL_DAMAGED || whole != record_of(at))
                CHECK_INT(at, -1); /* a skipped record would silently lead to an older state */
            file[at] = before;
        }
    CHECK_INT(walk(file, size, &(ln_sync_journal_state){LN_SYNC_JOURNAL_END}), records);
}

/* Every length at which a write may have stopped: complete records stay, the rest is cut off. */
static void lengths_of_a_write(void) {
    for (uint64_t size = starts[0]; size <= starts[records]; size += size > PAGE ? step : 1) {
        ln_sync_journal_state state;
        const int whole = walk(file, size, &state);
        int expected = 0;
        while (expected < records && starts[expected + 1] <= size) expected++;
        if (whole != expected || state != (size == starts[expected] ? LN_SYNC_JOURNAL_END : LN_SYNC_JOURNAL_CUT))
            CHECK_INT(size, -1);
    }
}

/* Any set of missing pages of the last record counts as never written, unless these pages were all zeros anyway. */
static void missing_pages(void) {
    const uint64_t size = starts[records], last = starts[records - 1], first = last / PAGE;
    const int pages = (int)((size - 1) / PAGE - first) + 1;
    for (int choice = 1; choice < 1 << pages; choice++) {
        ln_sync_journal_state state;
        bool lost = false;
        memcpy(changed, file, size);
        for (int k = 0; k < pages; k++) {
            const uint64_t from = (first + (uint64_t)k) * PAGE, to = from + PAGE;
            for (uint64_t i = from < last ? last : from; (choice >> k & 1) && i < to && i < size; i++) {
                lost = lost || changed[i];
                changed[i] = 0;
            }
        }
        const int whole = walk(changed, size, &state);
        if (!lost) {
            CHECK_INT(whole, records);
            continue;
        }
        CHECK_INT(whole, records - 1);
        CHECK(state == LN_SYNC_JOURNAL_UNWRITTEN || state == LN_SYNC_JOURNAL_CUT);
        /* In the middle of the file this is damage, because the following records were acknowledged later. */
        memcpy(changed + size, file + starts[0], starts[1] - starts[0]);
        CHECK_INT(walk(changed, size + starts[1] - starts[0], &state), records - 1);
        CHECK_INT(state, LN_SYNC_JOURNAL_DAMAGED);
    }
}

static size_t most_written; /* by one call; 0: everything */
static int interruptions;

/* Takes the place of the system's function: writes a part, or is interrupted before it writes. */
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    static unsigned char all[ROOM];
    size_t size = 0;
    if (most_written > 0 && interruptions++ % 3 == 1) {
        errno = EINTR;
        return -1;
    }
    CHECK(count > 0 && count <= 1024);
    for (int i = 0; i < count; i++) {
        CHECK(size + parts[i].iov_len <= sizeof all);
        memcpy(all + size, parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    return pwrite(fd, all, most_written > 0 && size > most_written ? most_written : size, at);
}

/* Records of few and of many parts, also of empty ones, although the system writes a part of them at a time. */
static void pieces_of_a_write(void) {
    enum { MOST = 200 };
    static const int counts[] = {1, 2, 61, 62, 63, 64, 65, 127, 128, 129, MOST};
    static unsigned char bytes[MOST * 40];
    static ln_net_slice parts[MOST];
    char path[] = "/tmp/linnet-journal-XXXXXX";
    for (size_t limit = 0; limit < 4; limit++) {
        uint64_t seed = 11, left = 0;
        ln_sync_journal *journal;
        linnet_error error;
        const int made = limit == 0 ? mkstemp(path) : open(path, O_RDWR | O_TRUNC);
        CHECK(made >= 0);
        close(made);
        most_written = (const size_t[]){0, 1, 33, 1000}[limit];
        CHECK_INT(ln_sync_journal_open(path, "digest", false, &journal, &error), LINNET_OK);
        clear();
        for (size_t i = 0; i < sizeof counts / sizeof *counts && journal != NULL; i++) {
            size_t size = 0;
            for (int k = 0; k < counts[i]; k++) {
                parts[k] = (ln_net_slice){bytes + size, (size_t)(check_random(&seed) >> 20) % 40};
                for (size_t b = 0; b < parts[k].size; b++) bytes[size++] = (unsigned char)(check_random(&seed) >> 20);
            }
            CHECK_INT(ln_sync_journal_append(journal, parts, counts[i], &error), LINNET_OK);
            starts[records + 1] =
                starts[records] + ln_sync_journal_frame(parts, counts[i], starts[records], file + starts[records]);
            memcpy(file + starts[records] + LN_SYNC_JOURNAL_FRAME, bytes, size);
            lengths[records] = size;
            left = ln_sync_journal_size(journal);
            CHECK_INT(left, starts[++records]);
        }
        ln_sync_journal_free(journal);
        const int read_from = open(path, O_RDONLY);
        CHECK_INT(read(read_from, changed, sizeof changed), left);
        close(read_from);
        memcpy(file, changed, LN_SYNC_JOURNAL_HEAD);
        CHECK(memcmp(file, changed, left) == 0);
        CHECK_INT(walk(changed, left, &(ln_sync_journal_state){LN_SYNC_JOURNAL_END}), records);
    }
    most_written = 0;
    unlink(path);
}

int main(int argc, char **argv) {
    if ((argc > 1 ? atoi(argv[1]) : 12) < 12) step = 5;
    static const size_t small[] = {40, 1, 32, 0, 33};
    clear(); /* a small record within one page */
    for (int i = 0; i < 5; i++) add(small[i], SIZE_MAX, 7 + (uint64_t)i);
    flips();
    lengths_of_a_write();
    missing_pages();
    for (size_t last = 0; last < 3;
         last++) { /* records of several pages; the last page ends before, at and after the end of a page */
        clear();
        add(100, SIZE_MAX, 1);
        add(9000, SIZE_MAX, 2);
        add((size_t)(3 * PAGE - starts[2] % PAGE - LN_SYNC_JOURNAL_FRAME) + 40 * last - 40, SIZE_MAX, 3);
        flips();
        lengths_of_a_write();
        missing_pages();
    }
    clear(); /* a frame at the end of a page, and gradients that are mostly zeros: neither of them may hide damage
                elsewhere */
    add(PAGE - LN_SYNC_JOURNAL_HEAD - 2 * LN_SYNC_JOURNAL_FRAME, SIZE_MAX, 4);
    CHECK_INT((starts[1] + LN_SYNC_JOURNAL_FRAME) % PAGE, 0);
    add(3 * PAGE, 5000, 5);
    flips();
    lengths_of_a_write();
    missing_pages();
    add(2 * PAGE, 0, 6);
    flips();
    lengths_of_a_write();
    pieces_of_a_write();
    return check_end("test_sync_journal");
}
