/* posix_journal.h - the file with the steps since the last snapshot: "LNSJ", version 2, the model's digest, then the
 * records. journal_frame.h describes the frames of the records; record.c writes their contents. */
#ifndef LN_SYNC_POSIX_JOURNAL_H
#define LN_SYNC_POSIX_JOURNAL_H

#include "sync/server/server.h"

typedef struct ln_sync_journal ln_sync_journal;

/* With `fsync`, a record is on the disk when append returns. Without it, the system holds the record, which then
 * survives a crash of the process but not of the machine. */
linnet_status ln_sync_journal_open(const char *path, const char *digest, bool fsync, ln_sync_journal **out,
                                   linnet_error *error);
void ln_sync_journal_free(ln_sync_journal *journal);
linnet_status ln_sync_journal_append(ln_sync_journal *journal, const ln_net_slice *parts, int count,
                                     linnet_error *error);
/* Passes all records to the server, and cuts off a last record that was not completely written. Damage is an error
 * (CORRUPT, with the offset) unless `repair` is set. With `repair` the records before the damage count, and a copy of
 * the file is kept as `aside`. A copy is also kept if a page of the last record never reached the disk. *left_out
 * receives the number of bytes at the end that were not used. */
linnet_status ln_sync_journal_replay(ln_sync_journal *journal, ln_sync_server *server, bool repair, const char *aside,
                                     uint64_t *left_out, linnet_error *error);
linnet_status ln_sync_journal_clear(ln_sync_journal *journal, linnet_error *error);
uint64_t ln_sync_journal_size(const ln_sync_journal *journal);

#endif
