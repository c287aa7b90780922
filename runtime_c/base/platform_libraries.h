/* platform_libraries.h - shared libraries and their symbols. */
#ifndef LN_BASE_PLATFORM_LIBRARIES_H
#define LN_BASE_PLATFORM_LIBRARIES_H

#include "base/platform.h"

/* Opens a shared library, which stays open until the process ends. If it cannot be opened, returns NULL and writes the
 * reason to `why`, which has `size` bytes. The reason does not repeat the path. */
void *ln_library_open(const char *path, char *why, size_t size);
/* Returns the address of a symbol; NULL if the library has no symbol of this name. */
void *ln_library_symbol(void *library, const char *name);
bool ln_file_exists(const char *path);
/* Writes the path of the file that contains this code: a library or a program. Returns the length of the folder's part
 * of the path, including its last slash; 0 if the path is not known. */
size_t ln_code_folder(char path[LN_MOST_PATH]);

#endif
