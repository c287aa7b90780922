/* devices.h - where steps run: the CPU, or a device of the plan's config. Only this file and plan/passes/places.c know
 * how a place is numbered; passes ask the functions below. */
#ifndef LN_DEVICES_H
#define LN_DEVICES_H

#include "kernel/parts.h"
#include "kernel/step.h"

#include "linnet_device.h"

/* A place: LN_CPU, or the number of a device, from 1 on. Devices are not numbered 0, so that zeroed values and nodes
 * belong to the CPU. */
enum { LN_CPU = 0 };

static inline bool ln_on_cpu(uint8_t place) { return !LN_HAS_DEVICES || place == LN_CPU; }
/* Returns the number of devices of a plan, its program or its working graph; 0 in a build without devices. */
static inline int32_t ln_device_count(int32_t n_devices) { return LN_HAS_DEVICES ? n_devices : 0; }

/* Why a node runs where it runs. */
enum ln_reason {
    LN_REASON_NONE,
    LN_REASON_CANNOT,
    LN_REASON_COST,
    LN_REASON_HINT,
    LN_REASON_CHOSEN,
    LN_REASON_REFUSED,
    LN_REASON_SCOPE
};

/* A plan's copy of a device: its functions and its limits. Functions that an older device does not have are NULL. */
typedef struct ln_device {
    linnet_device is;
    const linnet_device *origin; /* the struct of the plan's config, which identifies the device */
    linnet_device_limits limits;
    /* The model's file as a buffer of the device (file_import.c): */
    linnet_handle file;
    uintptr_t file_at;      /* the address where the buffer begins */
    uint64_t file_bytes;    /* 0: the device has no such buffer */
    struct ln_device *next; /* next device in the model's list of devices with such a buffer */
} ln_device;

/* Returns the offset of a constant in the buffer of the model's file, if the device can read it there; UINT64_MAX: it
 * cannot. */
static inline uint64_t ln_in_file(const ln_device *device, const void *host, uint64_t bytes) {
    const uint64_t offset = (uint64_t)((uintptr_t)host - device->file_at), left = device->file_bytes - offset;
    const bool inside = offset < device->file_bytes && left >= bytes && left - bytes >= device->limits.padding;
    return inside && offset % device->limits.alignment == 0 ? offset : UINT64_MAX;
}
/* A chunk with this number is no allocation of its own, but the buffer of the model's file. */
enum { LN_CHUNK_FILE = -1 };

/* Copies a device's table and asks for its limits. Errors: INVALID_ARGUMENT, DEVICE_FAILED. */
linnet_status ln_device_open(const linnet_device *from, ln_device *to, linnet_error *error);
/* Fails with DEVICE_FAILED and the device's text for the code, or with OUT_OF_MEMORY for LINNET_DEVICE_FULL. `step` may
 * be "". */
linnet_status ln_device_failed(const ln_device *device, int code, const char *doing, const char *step,
                               linnet_error *error);
/* Allocates memory of the device. Errors: DEVICE_FAILED, OUT_OF_MEMORY. */
linnet_status ln_device_allocate(const ln_device *device, uint64_t bytes, linnet_handle *buffer, linnet_error *error);

/* A claim: consecutive nodes that one device runs as one step. */
typedef struct ln_work_claim {
    linnet_claim is;
    int32_t first, last; /* positions of its first and last node in the order of nodes; views may lie between them */
    struct ln_work_node *const *nodes;
    int32_t packed_chunk;
    uint64_t packed_offset;
} ln_work_claim;

/* A new value of a variable that a device computes. The device keeps it as the copy that the next run reads. */
typedef struct ln_work_move {
    int32_t value, copy; /* the new value, and the device's copy of the old value */
    int32_t variable; /* number of the variable in the model; while transfers are inserted, the graph's value for it */
    bool alone;       /* a run may leave out the download (ln_move.transfer) */
    int32_t step;     /* if `alone`: number of the step that downloads the value */
} ln_work_move;

#endif
