/* platform_libraries.h - shared libraries and their symbols. */
#ifndef LN_BASE_PLATFORM_LIBRARIES_H
#define LN_BASE_PLATFORM_LIBRARIES_H

#include "base/platform.h"

/* Shared libraries, which stay open until the process ends. ln_library_open returns NULL, and the reason in `why`,
 * which does not repeat the path. ln_code_folder gives the path of the file that contains this code, and returns the
 * length of its folder, with the last slash; 0: not known. */
void *ln_library_open(const char *path, char *why, size_t size);
void *ln_library_symbol(void *library, const char *name); /* NULL: there is none */
bool ln_file_exists(const char *path);
size_t ln_code_folder(char path[LN_MOST_PATH]);

#endif
