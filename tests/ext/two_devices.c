/* two_devices.c - a library with two devices and one option, count=N, for tests of the loader. Its devices run nothing.
 */
#include "linnet_device.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const linnet_device first = {.struct_size = sizeof first, .version = LINNET_DEVICE_VERSION, .name = "first"},
                           second = {.struct_size = sizeof second, .version = LINNET_DEVICE_VERSION, .name = "second"};
static const linnet_device *const both[] = {&first, &second};
static char seen[64];
static size_t size_of_host, size_of_list;

EXPORT int linnet_extension_devices(const linnet_host *host, const char *options, linnet_device_list *list) {
    snprintf(seen, sizeof seen, "%s", options);
    size_of_host = host->struct_size;
    size_of_list = list->struct_size;
    list->count = 2;
    list->devices = both;
    if (strncmp(options, "count=", 6) == 0 && options[6] >= '0' && options[6] <= '2' && options[7] == 0) {
        list->count = options[6] - '0';
        list->missing = "no driver is installed: install one";
    } else if (options[0] != 0) {
        list->missing = "the only option is count=N, with 0 to 2 devices";
        return 7;
    }
    return 0;
}

/* The old function is there too: the loader prefers the new one. */
EXPORT const linnet_device *linnet_extension_device(void) { return NULL; }

EXPORT const char *seen_options(void);
const char *seen_options(void) { return seen; }
EXPORT int seen_sizes(void); /* 1: the table and the list were whole */
int seen_sizes(void) { return size_of_host == sizeof(linnet_host) && size_of_list == sizeof(linnet_device_list); }
