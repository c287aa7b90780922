/* cache.h - stores compiled programs for later processes: in the host program's cache if there is one, otherwise as
 * files of a folder. */
#ifndef LG_CACHE_H
#define LG_CACHE_H

#include "linnet_device.h"
#include <stdbool.h>
#include <stddef.h>

/* Loads the program of this key from the host's cache, or, if `host` is NULL, from a file of the folder. Returns its
 * size, and the caller frees *data. Returns 0 if the program is not there, or if both `host` and `folder` are NULL. */
size_t lg_cache_load(const linnet_program_cache *host, const char *folder, const char *key, unsigned char **data);
/* Stores a program in the same place. Does nothing if the folder is NULL or cannot be used, because a program can
 * always be compiled again. */
void lg_cache_store(const linnet_program_cache *host, const char *folder, const char *key, const void *data,
                    size_t size);
/* Writes the path of the user's folder for programs: $XDG_CACHE_HOME/linnet/programs or ~/.cache/linnet/programs.
 * Returns false if neither XDG_CACHE_HOME nor HOME is an absolute path, or if the result is too long. */
bool lg_cache_folder(char *out, size_t size);

#endif
