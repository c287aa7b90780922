/* library.h - the list of devices that a library gives. */
#ifndef LG_LIBRARY_H
#define LG_LIBRARY_H

#include "kernels_gpu/common/options.h"
#include "linnet_device.h"

/* The devices for one text of options. They live as long as the process. */
typedef struct lg_set lg_set;
enum { LG_MOST_DEVICES = 32 };
struct lg_set {
    lg_set *next;
    const char *options;
    const linnet_device *devices[LG_MOST_DEVICES];
    int count;
    const char *missing;
};

typedef struct lg_backend {
    const char *name; /* "OpenCL" */
    unsigned options; /* LG_HAS_... */
    void (*find)(const linnet_host *host, const lg_options *options, lg_set *out);
} lg_backend;

/* linnet_extension_devices of a backend: finds the devices once for each text of options. */
int lg_list_devices(const lg_backend *backend, const linnet_host *host, const char *options, linnet_device_list *list);

#endif
