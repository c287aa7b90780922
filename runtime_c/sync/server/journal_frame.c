/* journal_frame.c - writes the frames of journal records, and decides why the end of a file is incomplete. An
 * acknowledged record is completely on the disk, so only bytes that can be an unfinished write are skipped. */
#include "sync/server/journal_frame.h"

#include "net/bytes.h"

enum {
    FRAME = LN_SYNC_JOURNAL_FRAME,
    ALIGN = LN_SYNC_JOURNAL_ALIGN,
    PAGE = LN_SYNC_JOURNAL_PAGE,
    LENGTH = 0,
    CRC = 8,
    BLANK = 12,
    RESERVED = 16,
    FRAME_CRC = 28
};

static const unsigned char zeros[ALIGN];

static uint64_t padding(uint64_t length) { return (ALIGN - length % ALIGN) % ALIGN; }

static bool is_blank(const unsigned char *bytes, uint64_t size) {
    while (size && !*bytes) bytes++, size--;
    return size == 0;
}

/* Counts the pages that are all zeros, beginning with the second page. The bytes arrive in pieces; the first byte is at
 * offset `at`. */
typedef struct pages {
    uint64_t at, blank;
    bool first, full; /* first: this page has the frame; full: this page has a byte that is not zero */
} pages;

static void count(pages *p, const unsigned char *bytes, uint64_t size) {
    while (size) {
        const uint64_t left = PAGE - p->at % PAGE, n = size < left ? size : left;
        if (!p->first && !p->full) p->full = !is_blank(bytes, n);
        p->at += n;
        bytes += n;
        size -= n;
        if (p->at % PAGE) continue;
        p->blank += !p->first && !p->full;
        p->first = p->full = false;
    }
}

static uint64_t counted(pages *p) {
    if (p->at % PAGE) p->blank += !p->first && !p->full;
    return p->blank;
}

/* Returns a page counter for the bytes after a frame. They begin in the frame's page, unless the frame ends exactly at
 * a page border. */
static pages behind(uint64_t at) { return (pages){at + FRAME, 0, (at + FRAME) % PAGE != 0, false}; }

uint64_t ln_sync_journal_frame(const ln_net_slice *parts, int parts_count, uint64_t at, unsigned char frame[FRAME]) {
    pages p = behind(at);
    uint64_t length = 0;
    uint32_t crc = 0;
    for (int i = 0; i < parts_count; i++) {
        crc = ln_net_crc32c(crc, parts[i].data, parts[i].size);
        count(&p, parts[i].data, parts[i].size);
        length += parts[i].size;
    }
    crc = ln_net_crc32c(crc, zeros, (size_t)padding(length));
    count(&p, zeros, padding(length));
    put64(frame + LENGTH, length);
    put32(frame + CRC, crc);
    put32(frame + BLANK, (uint32_t)counted(&p));
    for (int i = RESERVED; i < FRAME_CRC; i++) frame[i] = 0;
    put32(frame + FRAME_CRC, ln_net_crc32c(0, frame, FRAME_CRC));
    return FRAME + length + padding(length);
}

static bool is_frame(const unsigned char *frame) {
    return get32(frame + FRAME_CRC) == ln_net_crc32c(0, frame, FRAME_CRC) && is_blank(frame + RESERVED, 12);
}

/* Returns the length of the valid record at `at` in bytes, or 0 if there is none. */
static uint64_t whole_at(const unsigned char *file, uint64_t size, uint64_t at) {
    const unsigned char *frame = file + at;
    uint64_t length;
    if (size - at < FRAME || !is_frame(frame)) return 0;
    length = get64(frame + LENGTH);
    if (length > size - at - FRAME || padding(length) > size - at - FRAME - length) return 0;
    length += padding(length);
    return get32(frame + CRC) == ln_net_crc32c(0, frame + FRAME, (size_t)length) ? FRAME + length : 0;
}

/* Classifies a record whose frame is invalid. If the page of the frame is all zeros and no valid record follows, the
 * last record was cut short or some of its pages never reached the disk. Otherwise the file is damaged. */
static ln_sync_journal_state without_frame(const unsigned char *file, uint64_t size, uint64_t at) {
    const uint64_t left = PAGE - at % PAGE, n = size - at < left ? size - at : left;
    if (!is_blank(file + at, n)) return LN_SYNC_JOURNAL_DAMAGED;
    for (uint64_t later = at + ALIGN; later < size; later += ALIGN)
        if (whole_at(file, size, later)) return LN_SYNC_JOURNAL_DAMAGED;
    return is_blank(file + at, size - at) ? LN_SYNC_JOURNAL_CUT : LN_SYNC_JOURNAL_UNWRITTEN;
}

ln_sync_journal_state ln_sync_journal_look(const unsigned char *file, uint64_t size, uint64_t at, uint64_t *length,
                                           uint64_t *next) {
    const unsigned char *frame = file + at;
    uint64_t left = size - at, whole;
    pages p = behind(at);
    *next = at;
    *length = 0;
    if (!left) return LN_SYNC_JOURNAL_END;
    if (left < FRAME) return LN_SYNC_JOURNAL_CUT;
    if (!is_frame(frame)) return without_frame(file, size, at);
    left -= FRAME;
    *length = get64(frame + LENGTH);
    if (*length > left || padding(*length) > left - *length) return LN_SYNC_JOURNAL_CUT;
    whole = *length + padding(*length);
    if (get32(frame + CRC) == ln_net_crc32c(0, frame + FRAME, (size_t)whole)) {
        *next = at + FRAME + whole;
        return LN_SYNC_JOURNAL_WHOLE;
    }
    count(&p, frame + FRAME, whole);
    return whole == left && counted(&p) > get32(frame + BLANK) ? LN_SYNC_JOURNAL_UNWRITTEN : LN_SYNC_JOURNAL_DAMAGED;
}
