/* posix_journal.h - the file with the steps since the last snapshot: "LNSJ", version 2, the model's digest, then the
 * records. journal_frame.h describes the frames of the records; record.c writes their contents. */
#ifndef LN_SYNC_POSIX_JOURNAL_H
#define LN_SYNC_POSIX_JOURNAL_H

#include "sync/server/server.h"

typedef struct ln_sync_journal ln_sync_journal;

/* Opens the journal, or creates it if the file does not exist. `digest` is the model's digest; a journal of another
 * model is an error. With `fsync`, a record is on the disk when ln_sync_journal_append returns. Without it, the record
 * is in the memory of the system, so it survives a crash of the process but not of the machine. Call
 * ln_sync_journal_replay before the first append. */
linnet_status ln_sync_journal_open(const char *path, const char *digest, bool fsync, ln_sync_journal **out,
                                   linnet_error *error);
void ln_sync_journal_free(ln_sync_journal *journal);
/* Appends one record, which consists of these parts. On an error, no record was appended. */
linnet_status ln_sync_journal_append(ln_sync_journal *journal, const ln_net_slice *parts, int count,
                                     linnet_error *error);
/* Passes all records to the server, and cuts off a last record that was not completely written. Without `repair`,
 * damage is an error (CORRUPT, with the offset). With `repair`, only the records before the damage are used, and the
 * file is first copied to the path `aside`. The file is also copied if a page of the last record never reached the
 * disk. *left_out receives the number of bytes at the end that were not used. */
linnet_status ln_sync_journal_replay(ln_sync_journal *journal, ln_sync_server *server, bool repair, const char *aside,
                                     uint64_t *left_out, linnet_error *error);
/* Removes all records, after a snapshot has their effects. */
linnet_status ln_sync_journal_clear(ln_sync_journal *journal, linnet_error *error);
/* Returns the size of the file in bytes. */
uint64_t ln_sync_journal_size(const ln_sync_journal *journal);

#endif
