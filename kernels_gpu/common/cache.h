/* cache.h - compiled programs that outlive the process: in the cache of the host, or without one in a folder. */
#ifndef LG_CACHE_H
#define LG_CACHE_H

#include "linnet_device.h"
#include <stdbool.h>
#include <stddef.h>

/* The program of this key from the host's cache; without one (NULL), from a file of the folder. The caller frees it. 0:
 * there is none, or no folder (NULL). */
size_t lg_cache_load(const linnet_program_cache *host, const char *folder, const char *key, unsigned char **data);
/* Does nothing if the folder cannot be used. */
void lg_cache_store(const linnet_program_cache *host, const char *folder, const char *key, const void *data,
                    size_t size);
/* The user's folder for programs: $XDG_CACHE_HOME/linnet/programs or ~/.cache/linnet/programs. False: there is none. */
bool lg_cache_folder(char *out, size_t size);

#endif
