/* posix_files.h - opens, replaces and copies files of a server's folder, never through a symbolic link.
 * The folder itself may be a link, because the user chose it. Its contents belong to the server. */
#ifndef LN_SYNC_POSIX_FILES_H
#define LN_SYNC_POSIX_FILES_H

#include "linnet.h"

#include <stdbool.h>
#include <stdint.h>

/* Like open(2), but only for regular files: fails with ELOOP for a link and EINVAL for anything else. Returns -1 and
 * sets errno. */
int ln_sync_file_open(const char *path, int flags);
/* Returns true if something other than a regular file exists at the path. */
bool ln_sync_file_is_strange(const char *path);
/* Writes the folder's entries to the disk, so that new names survive a crash. Not every file system can do this. */
void ln_sync_folder_sync(const char *folder);
/* Replaces the contents of a file by this text: writes a new file in the same folder, syncs it, and renames it. */
linnet_status ln_sync_file_replace(const char *folder, const char *path, const char *text, linnet_error *error);
/* Copies the bytes of `fd` to a new file at `path` and syncs it. Returns false with errno set, and removes the file. */
bool ln_sync_file_copy(int fd, uint64_t size, const char *path);

/* Reports a failed file operation. `what` names the operation; errno gives the reason. */
linnet_status ln_sync_file_failed(const char *what, const char *path, linnet_error *error);

#endif
