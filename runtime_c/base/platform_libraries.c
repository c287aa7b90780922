/* platform_libraries.c - shared libraries that a program opens by name, on systems that have dlopen. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#include "base/platform_libraries.h"

#include "base/platform.h"

#include <stdio.h>
#include <string.h>

#if defined(_WIN32) || defined(__wasm__)

void *ln_library_open(const char *path, char *why, size_t size) {
    (void)path;
    snprintf(why, size, "a system without shared libraries");
    return NULL;
}

void *ln_library_symbol(void *library, const char *name) {
    (void)library, (void)name;
    return NULL;
}

bool ln_file_exists(const char *path) {
    (void)path;
    return false;
}

size_t ln_code_folder(char path[LN_MOST_PATH]) {
    path[0] = 0;
    return 0;
}

#else

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

void *ln_library_open(const char *path, char *why, size_t size) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) return library;
    const char *text = dlerror();
    const size_t length = strlen(path);
    if (text == NULL) text = "";
    if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0) text += length + 2;
    snprintf(why, size, "%s", text);
    return NULL;
}

void *ln_library_symbol(void *library, const char *name) { return dlsym(library, name); }

bool ln_file_exists(const char *path) { return access(path, F_OK) == 0; }

size_t ln_code_folder(char path[LN_MOST_PATH]) {
    Dl_info info;
    const char *file = dladdr((void *)(uintptr_t)ln_code_folder, &info) != 0 ? info.dli_fname : NULL;
#if defined(__linux__)
    /* For the program itself, dladdr gives the name under which it was started, which need not be a path. */
    if (file != NULL && strchr(file, '/') == NULL) file = "/proc/self/exe";
#endif
    if (file == NULL || realpath(file, path) == NULL) path[0] = 0;
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash + 1 - path);
}

#endif
