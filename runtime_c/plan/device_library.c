/* device_library.c - opens devices by name: LIBRARY[:INDEX][,OPTION=VALUE]... (linnet_device.h).
 * Nothing is kept here: the system's loader knows which libraries are open, and a library gives the same devices again.
 */
#include "base/platform.h"
#include "base/platform_libraries.h"
#include "base/structs.h"
#include "kernel/parts.h"
#include "linnet_device.h"

#include <stdio.h>
#include <string.h>

#if defined(__APPLE__)
#define SUFFIX ".dylib"
#else
#define SUFFIX ".so"
#endif

/* A device's name in parts. */
typedef struct parts {
    const char *name, *options;
    char address[LN_MOST_PATH]; /* remote:ADDRESS[,OPTION=VALUE]...: the options at=ADDRESS and the others */
    int length;                 /* length of the library's part at the start of the name */
    int32_t index;
    bool is_path;
} parts;

/* A name such as remote:pi1:7700,key=FILE, whose address may have colons, dots and slashes. */
static bool split_remote(const char *name, parts *p) {
    const size_t length = sizeof "remote:" - 1;
    if (strncmp(name, "remote:", length) != 0) return false;
    p->length = (int)length - 1;
    p->options = p->address;
    return (size_t)snprintf(p->address, sizeof p->address, "at=%s", name + length) < sizeof p->address;
}

static bool split(const char *name, parts *p) {
    if (split_remote(name, p)) return true;
    const size_t end = strcspn(name, ",");
    size_t at = end;
    p->options = name[end] == ',' ? name + end + 1 : "";
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
    if (at == end || at == 0 || name[at - 1] != ':') at = end + 1; /* no index */
    for (size_t i = at; i < end; i++) p->index = p->index < 100000000 ? 10 * p->index + (name[i] - '0') : p->index;
    if (at - 1 >= LN_MOST_PATH) return false;
    p->length = (int)at - 1;
    p->is_path = memchr(name, '/', at - 1) != NULL || memchr(name, '.', at - 1) != NULL;
    return p->length > 0 && (p->is_path || memchr(name, ':', at - 1) == NULL);
}

static void *open_library(const parts *p, linnet_error *error) {
    enum { MOST = 2 * LN_MOST_PATH + 64 };
    char folder[LN_MOST_PATH], file[MOST], why[sizeof error->got];
    size_t length = 0;
    if (p->is_path) {
        snprintf(file, sizeof file, "./%.*s", p->length, p->name);
        /* The system searches a name without a slash in its own folders alone. */
        if (strchr(file + 2, '/') != NULL || !ln_file_exists(file)) memmove(file, file + 2, strlen(file + 2) + 1);
    } else {
        length = ln_code_folder(folder);
        for (int where = length > 0 ? 0 : 2; where < 3; where++) {
            snprintf(file, sizeof file, "%.*s%sliblinnet_%.*s" SUFFIX, where < 2 ? (int)length : 0, folder,
                     where == 1 ? "../lib/" : "", p->length, p->name);
            if (where < 2 && ln_file_exists(file)) break;
        }
    }
    void *library = ln_library_open(file, why, sizeof why);
    if (library != NULL) return library;
    ln_fail(error, LINNET_NOT_FOUND, "cannot load a device from '%.*s'", p->length, p->name);
    ln_got(error, "%s", why);
    if (p->is_path) {
        ln_expected(error, "a shared library for this machine, and every library that it needs");
        ln_hint(error, "check the path; if the file exists, `ldd` names the libraries that are missing");
    } else {
        ln_expected(error, "a library liblinnet_%.*s" SUFFIX, p->length, p->name);
        ln_hint(error, "give its path, or install it where the system searches libraries, in ../lib or in %.*s",
                (int)length, folder);
    }
    return NULL;
}

/* Fills `list` with the devices of the library, or fails. */
static linnet_status find(const char *name, parts *p, linnet_device_list *list, linnet_error *error) {
    int (*all)(const linnet_host *, const char *, linnet_device_list *);
    const linnet_device *(*one)(void);
    *p = (parts){.name = name};
    linnet_device_list_init(list);
    if (!LN_HAS_DEVICES) return ln_left_out("the loader of devices", "LINNET_DEVICES", error);
    if (name == NULL) return ln_null_argument(error, "linnet_device_open, linnet_device_find", "name");
    if (!split(name, p)) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "'%s' is not the name of a device", name);
        ln_expected(error, "LIBRARY[:INDEX][,OPTION=VALUE]...");
        return ln_hint(error, "give a name such as opencl or opencl:1, or the path of a library");
    }
    void *library = open_library(p, error);
    if (library == NULL) return LINNET_NOT_FOUND;
    void *symbol = ln_library_symbol(library, "linnet_extension_devices");
    if (symbol != NULL) {
        memcpy(&all, &symbol, sizeof all);
        const int code = all(linnet_device_host(), p->options, list);
        if (code == 0) return LINNET_OK;
        ln_fail(error, LINNET_INVALID_ARGUMENT, "the library of '%s' refuses its options", name);
        ln_got(error, "code %d", code);
        return ln_hint(error, "%s", list->missing != NULL ? list->missing : "check the options after the comma");
    }
    symbol = ln_library_symbol(library, "linnet_extension_device");
    if (symbol == NULL) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "cannot load a device from '%.*s'", p->length, p->name);
        ln_expected(error, "a library that exports linnet_extension_devices");
        ln_got(error, "a library without this function");
        return ln_hint(error, "give the library of a device (linnet_device.h), and export the function from it");
    }
    if (p->options[0] != 0) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "the device of '%.*s' takes no options", p->length, p->name);
        ln_got(error, "%s", p->options);
        return ln_hint(error, "leave out the options after the comma");
    }
    memcpy(&one, &symbol, sizeof one);
    list->single = one();
    list->devices = &list->single;
    list->count = list->single != NULL;
    if (list->single == NULL)
        list->missing = "the library finds no device: check that the hardware and its driver are installed, or do "
                        "without this device";
    return LINNET_OK;
}

linnet_status linnet_device_find(const char *name, linnet_device_list *list, linnet_error *error) {
    parts p;
    linnet_device_list own;
    LN_WANT_ERROR(error);
    const linnet_status status = find(name, &p, &own, error);
    if (status != LINNET_OK) return status;
    if (linnet_struct_give(&own, sizeof own, list, LN_UP_TO(linnet_device_list, single), "linnet_device_list", error))
        return LINNET_INVALID_ARGUMENT;
    if (own.devices == &own.single) list->devices = &list->single;
    return LINNET_OK;
}

linnet_status linnet_device_open(const char *name, const linnet_device **device, linnet_error *error) {
    parts p;
    linnet_device_list list;
    LN_WANT_ERROR(error);
    if (device == NULL) return ln_null_argument(error, "linnet_device_open", "device");
    *device = NULL;
    const linnet_status status = find(name, &p, &list, error);
    if (status != LINNET_OK) return status;
    if (p.index < list.count) *device = list.devices[p.index];
    if (*device != NULL) return LINNET_OK;
    ln_fail(error, LINNET_NOT_FOUND, "there is no device '%s' on this machine", name);
    ln_expected(error, "a device with number %d, counted from 0", (int)p.index);
    ln_got(error, "a library with %d devices", (int)list.count);
    return ln_hint(error, "%s", list.missing != NULL ? list.missing : "give the number of another device");
}
