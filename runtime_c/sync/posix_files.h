/* posix_files.h - the files of a server's folder: opened, replaced and copied, never through a symbolic link.
 * The folder itself may be one: that is the user's choice, what lies in it is ours. */
#ifndef LN_SYNC_POSIX_FILES_H
#define LN_SYNC_POSIX_FILES_H

#include "linnet.h"

#include <stdbool.h>
#include <stdint.h>

/* open(2) of a regular file: a link or anything else is refused (ELOOP, EINVAL). -1: errno says why. */
int ln_sync_file_open(const char *path, int flags);
/* True: there is something else than a regular file at the path. */
bool ln_sync_file_is_strange(const char *path);
/* Names in a folder are safe once the folder is on the disk; not every file system can do that. */
void ln_sync_folder_sync(const char *folder);
/* A new file with this text in the place of the old one: written beside it, synced, renamed. */
linnet_status ln_sync_file_replace(const char *folder, const char *path, const char *text, linnet_error *error);
/* The bytes of `fd` in a new file at `path`, on the disk. False: errno says why, and nothing is left. */
bool ln_sync_file_copy(int fd, uint64_t size, const char *path);

/* "a file cannot be written: path, why" */
linnet_status ln_sync_file_failed(const char *what, const char *path, linnet_error *error);

#endif
