/* platform_files.h - files: reading by mapping, writing atomically. */
#ifndef LN_BASE_PLATFORM_FILES_H
#define LN_BASE_PLATFORM_FILES_H

#include "base/platform.h"

/* Maps a whole file read-only. Errors: NOT_FOUND, READ_FAILED. */
linnet_status ln_file_map(const char *path, const void **data, size_t *size, linnet_error *error);
void ln_file_unmap(const void *data, size_t size);
/* Lets the system drop pages of a mapped file that are not needed soon. They are read again on access. */
void ln_file_forget(const void *data, size_t size);
/* Replaces a file atomically. ln_file_write writes `parts` one after another to PATH.part (it follows a link first).
 * ln_file_commit makes the data durable and renames the file to PATH. Both remove PATH.part when they fail with
 * WRITE_FAILED. A PATH.part that remains after a crash is overwritten by the next write. */
typedef struct ln_span {
    const void *data;
    size_t size;
} ln_span;
typedef struct ln_new_file {
    int file;
    uint64_t bytes;
    char path[LN_MOST_PATH], temporary[LN_MOST_PATH + 8];
} ln_new_file;

linnet_status ln_file_write(ln_new_file *f, const char *path, const ln_span *parts, int32_t count, linnet_error *error);
linnet_status ln_file_commit(ln_new_file *f, linnet_error *error);

#endif
