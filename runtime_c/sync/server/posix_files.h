/* posix_files.h - opens, replaces and copies files of a server's folder, never through a symbolic link.
 * The folder itself may be a link, because the user chose it. Its contents belong to the server. */
#ifndef LN_SYNC_POSIX_FILES_H
#define LN_SYNC_POSIX_FILES_H

#include "linnet.h"

#include <stdbool.h>
#include <stdint.h>

/* Opens a regular file like open(2). On an error, returns -1 and sets errno: ELOOP for a link, EINVAL for anything else
 * that is not a regular file. */
int ln_sync_file_open(const char *path, int flags);
/* Tells whether something other than a regular file exists at the path. */
bool ln_sync_file_is_strange(const char *path);
/* Writes the folder's entries to the disk, so that new names survive a crash. Not every file system can do this. */
void ln_sync_folder_sync(const char *folder);
/* Replaces the contents of the file `path`, which is in `folder`, by this text: writes a new file in the folder, syncs
 * it, and renames it. After a crash, the file has either the old or the new contents. Errors: WRITE_FAILED. */
linnet_status ln_sync_file_replace(const char *folder, const char *path, const char *text, linnet_error *error);
/* Copies the bytes of `fd` to a new file at `path` and syncs it. Returns false with errno set, and removes the file. */
bool ln_sync_file_copy(int fd, uint64_t size, const char *path);

/* Reports a failed file operation and returns WRITE_FAILED. `what` names the operation; errno gives the reason. */
linnet_status ln_sync_file_failed(const char *what, const char *path, linnet_error *error);

#endif
