/* posix_journal.h - the file of steps since the last snapshot: "LNSJ", version 2, the model's digest; then records as
 * journal_frame.h says, each of which record.c wrote. */
#ifndef LN_SYNC_POSIX_JOURNAL_H
#define LN_SYNC_POSIX_JOURNAL_H

#include "sync/server_core.h"

typedef struct ln_sync_journal ln_sync_journal;

/* fsync: records are on the disk when append returns; else the system has them, which survives the process alone. */
linnet_status ln_sync_journal_open(const char *path, const char *digest, bool fsync, ln_sync_journal **out,
                                   linnet_error *error);
void ln_sync_journal_free(ln_sync_journal *journal);
linnet_status ln_sync_journal_append(ln_sync_journal *journal, const ln_sync_slice *parts, int count,
                                     linnet_error *error);
/* Gives all records to the server, and cuts off one that was not written to its end. Damage is an error (CORRUPT, with
 * the place), unless `repair`: then what stands before it counts, and the file as it was is kept as `aside`. So it is
 * when a page of the last record never reached the disk. *left_out: the bytes that do not count. */
linnet_status ln_sync_journal_replay(ln_sync_journal *journal, ln_sync_server *server, bool repair, const char *aside,
                                     uint64_t *left_out, linnet_error *error);
linnet_status ln_sync_journal_clear(ln_sync_journal *journal, linnet_error *error);
uint64_t ln_sync_journal_size(const ln_sync_journal *journal);

#endif
