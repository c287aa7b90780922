/* platform_files.h - files: maps a file in order to read it, and replaces a file atomically. */
#ifndef LN_BASE_PLATFORM_FILES_H
#define LN_BASE_PLATFORM_FILES_H

#include "base/platform.h"

/* Maps a whole file read-only. ln_file_unmap ends the mapping. On an error, *data is NULL. Errors: NOT_FOUND,
 * READ_FAILED.
 */
linnet_status ln_file_map(const char *path, const void **data, size_t *size, linnet_error *error);
void ln_file_unmap(const void *data, size_t size);
/* Tells the system that these pages of a mapped file are not needed soon, so that it may drop them. An access reads
 * them again. */
void ln_file_forget(const void *data, size_t size);
/* Replaces a file atomically. First call ln_file_begin, which creates PATH.part; if PATH is a link, the file that it
 * names is replaced. Then call ln_file_append for one part after another, and ln_file_put to write over the first
 * bytes. At last call ln_file_commit, which makes the data durable and renames PATH.part to PATH. If one of them fails,
 * it removes PATH.part and returns WRITE_FAILED. ln_file_drop removes PATH.part too. If the process crashes, PATH.part
 * remains, and the next write replaces it. */
/* A file between ln_file_begin and ln_file_commit. PATH.part is open and locked, so that two writers take turns. */
typedef struct ln_new_file {
    int file;                                             /* descriptor of PATH.part */
    uint64_t bytes;                                       /* size of the file */
    bool hole;                                            /* the last part ended with zeros, which are not written */
    char path[LN_MOST_PATH], temporary[LN_MOST_PATH + 8]; /* PATH and PATH.part */
} ln_new_file;

/* `bytes` is the size that the file will have. */
linnet_status ln_file_begin(ln_new_file *f, const char *path, uint64_t bytes, linnet_error *error);
linnet_status ln_file_append(ln_new_file *f, const void *data, size_t size, linnet_error *error);
linnet_status ln_file_put(ln_new_file *f, const void *data, size_t size, linnet_error *error);
void ln_file_drop(ln_new_file *f);
linnet_status ln_file_commit(ln_new_file *f, linnet_error *error);

#endif
