/* library.h - the list of devices that a backend's library exports. */
#ifndef LG_LIBRARY_H
#define LG_LIBRARY_H

#include "kernels_gpu/common/options.h"
#include "linnet_device.h"

/* The devices for one text of options. They exist until the process ends. */
typedef struct lg_set lg_set;
enum { LG_MOST_DEVICES = 32 };
struct lg_set {
    lg_set *next;
    const char *options;
    const linnet_device *devices[LG_MOST_DEVICES];
    int count;
    const char *missing; /* why there are no devices */
};

typedef struct lg_backend {
    const char *name; /* "OpenCL" */
    unsigned options; /* LG_HAS_... */
    /* Fills the devices, or `missing`. Called once for each text of options. */
    void (*find)(const linnet_host *host, const lg_options *options, lg_set *out);
} lg_backend;

/* Implements linnet_extension_devices of a backend: finds the devices once for each text of options, and then returns
 * the same devices. Returns 0; or 1, with the reason in list->missing, if the options are wrong or memory is short. */
int lg_list_devices(const lg_backend *backend, const linnet_host *host, const char *options, linnet_device_list *list);

#endif
