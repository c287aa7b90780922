/* journal_frame.h - the layout of records in a journal. If the end of a journal is incomplete, these functions tell
 * why: a write was cut short, a page never reached the disk, or bytes are damaged. They make no system calls, so that
 * the simulator's disk can use them, too. */
#ifndef LN_SYNC_JOURNAL_FRAME_H
#define LN_SYNC_JOURNAL_FRAME_H

#include "net/handler.h"

/* The file has a head, then records. A record is a frame, the parts of the record one after the other, and zeros up to
 * a multiple of ALIGN. Therefore a frame never crosses a page border. A frame has a u64, the length of the parts; a
 * u32, the CRC-32C of the parts and the zeros; a u32, the number of pages after the frame's page that were all zeros
 * when they were written; 12 bytes of zero; and a u32, the CRC-32C of these 28 bytes. */
enum { LN_SYNC_JOURNAL_HEAD = 64, LN_SYNC_JOURNAL_FRAME = 32, LN_SYNC_JOURNAL_ALIGN = 32, LN_SYNC_JOURNAL_PAGE = 4096 };

typedef enum ln_sync_journal_state {
    LN_SYNC_JOURNAL_END,       /* nothing follows the last record */
    LN_SYNC_JOURNAL_WHOLE,     /* a valid record */
    LN_SYNC_JOURNAL_CUT,       /* only part of a record: the write was cut short */
    LN_SYNC_JOURNAL_UNWRITTEN, /* the last record; one of its pages never reached the disk and is all zeros */
    LN_SYNC_JOURNAL_DAMAGED    /* bytes changed after they were written */
} ln_sync_journal_state;

/* Fills the frame of a record that begins at offset `at` of the file. Returns its length in the file, including frame
 * and zeros. */
uint64_t ln_sync_journal_frame(const ln_net_slice *parts, int count, uint64_t at,
                               unsigned char frame[LN_SYNC_JOURNAL_FRAME]);
/* Examines the record that begins at offset `at` of a file of `size` bytes. For LN_SYNC_JOURNAL_WHOLE, *length is the
 * length of the record's parts, and *next is the offset of the next record. */
ln_sync_journal_state ln_sync_journal_look(const unsigned char *file, uint64_t size, uint64_t at, uint64_t *length,
                                           uint64_t *next);

#endif
