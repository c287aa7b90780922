/* journal_frame.h - how records lie in a journal, and what an end that is not whole tells: a write that was cut short,
 * a page that never reached the disk, or damage. No system calls: the simulator's disk has the same bytes. */
#ifndef LN_SYNC_JOURNAL_FRAME_H
#define LN_SYNC_JOURNAL_FRAME_H

#include "sync/stream.h"

/* A head of the file, then records: a frame, the parts one after the other, zeros up to a multiple of ALIGN. So a frame
 * lies in one page. Frame: u64 length; u32 CRC-32C of the parts and the zeros; u32 pages behind the frame's that were
 * zeros when written; 12 bytes of zero; u32 CRC-32C of these 28. */
enum { LN_SYNC_JOURNAL_HEAD = 64, LN_SYNC_JOURNAL_FRAME = 32, LN_SYNC_JOURNAL_ALIGN = 32, LN_SYNC_JOURNAL_PAGE = 4096 };

typedef enum ln_sync_journal_state {
    LN_SYNC_JOURNAL_END,       /* nothing is behind the last record */
    LN_SYNC_JOURNAL_WHOLE,     /* a record */
    LN_SYNC_JOURNAL_CUT,       /* less than a record: the write ended there */
    LN_SYNC_JOURNAL_UNWRITTEN, /* the last record, of which a page never reached the disk: it is zeros */
    LN_SYNC_JOURNAL_DAMAGED    /* bytes that were written and are others now */
} ln_sync_journal_state;

/* Fills the frame of a record that begins at `at` of the file; returns its length in the file, frame and zeros
 * included. */
uint64_t ln_sync_journal_frame(const ln_sync_slice *parts, int count, uint64_t at,
                               unsigned char frame[LN_SYNC_JOURNAL_FRAME]);
/* What begins at `at`. *length: of a whole record's parts; *next: where what follows begins. */
ln_sync_journal_state ln_sync_journal_look(const unsigned char *file, uint64_t size, uint64_t at, uint64_t *length,
                                           uint64_t *next);

#endif
