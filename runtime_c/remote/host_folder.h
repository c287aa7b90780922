/* host_folder.h - the folder in which a host keeps pieces, so that a client's second start sends nothing. Files that
 * the owner has put there stay as they are, and do not count. Several hosts may use one folder. */
#ifndef LN_REMOTE_HOST_FOLDER_H
#define LN_REMOTE_HOST_FOLDER_H

#include "remote/host_config.h"
#include "remote/sha256.h"

enum { LN_HOST_PATH = 4096 };

/* Writes the path of a piece. Returns whether the file exists. */
bool ln_host_folder_find(const ln_host_config *config, const unsigned char digest[LN_SHA256], char path[LN_HOST_PATH]);
void ln_host_folder_remove(const char *path);
/* Creates a file of so many bytes for a piece that is to be written, and removes the pieces that were used longest ago
 * until the folder is within its limit. Returns its descriptor; -1: there cannot be such a file. */
int ln_host_folder_make(const ln_host_config *config, uint64_t bytes, char path[LN_HOST_PATH]);
/* Gives that file the name of its piece. */
bool ln_host_folder_keep(const ln_host_config *config, const unsigned char digest[LN_SHA256], const char *made);
/* Opens the file in which a client's variable is kept. If there is none and `bytes` is not 0, creates it. Returns its
 * descriptor; -1: there cannot be such a file. */
int ln_host_folder_kept(const ln_host_config *config, const unsigned char digest[LN_SHA256], uint64_t bytes);
/* Removes files of kept variables that nobody has written for a day: their client does not come back. */
void ln_host_folder_clean(const ln_host_config *config);
/* Stores a piece. A failure has no effect: the piece is then only in memory. */
void ln_host_folder_store(const ln_host_config *config, const unsigned char digest[LN_SHA256], const void *bytes,
                          size_t size);

#endif
