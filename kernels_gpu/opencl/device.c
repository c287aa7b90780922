/* device.c - finds the devices of OpenCL, and gives their limits and costs. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/common/choose.h"
#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/library.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/opencl/cl.h"
#include "kernels_gpu/opencl/host_memory.h"
#include "kernels_gpu/opencl/memory.h"
#include "kernels_gpu/opencl/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- properties of a device
 * ------------------------------------------------------------------------------------------ */

static const char *explain(void *context, int code) {
    lg_device *d = context;
    if (code < 0) return lg_cl_error(code);
    return lg_failure_text(&d->failures, code);
}

static int limits(void *context, linnet_device_limits *out) {
    const lg_device *d = context;
    out->alignment = d->alignment;
    out->padding = 64;
    out->largest_buffer = d->largest;
    out->epilogues = 1;
    out->in_place = 1;
    out->import_alignment = LG_PAGE;
    out->shared = d->options.memory == LG_SHARED;
    out->transfer_ns = d->options.modelled ? 20000 : 0;
    out->transfer_rate = d->options.modelled ? (d->unified ? 8000 : 6000) : 0;
    return 0;
}

static double cost(void *context, const linnet_step *step) {
    const lg_device *d = context;
    return lg_cost(&d->machine, d->options.modelled, step);
}

static int about(void *context, linnet_device_about *out) {
    const lg_device *d = context;
    out->kind = d->machine.is_cpu ? LINNET_DEVICE_CPU : LINNET_DEVICE_GPU;
    out->hardware = d->hardware;
    out->driver = d->driver;
    out->features = d->features;
    out->memory = d->memory;
    return 0;
}

/* ---- finding devices
 * ----------------------------------------------------------------------------------------------- */

static void text_of(const lg_cl *cl, cl_device_id id, cl_uint what, char *out, size_t size) {
    size_t length = 0;
    out[0] = 0;
    if (cl->GetDeviceInfo(id, what, size - 1, out, &length) != CL_SUCCESS) out[0] = 0;
    out[size - 1] = 0;
}

static uint64_t number_of(const lg_cl *cl, cl_device_id id, cl_uint what) {
    uint64_t value = 0; /* the fields have 4 or 8 bytes, and every device of ours is little-endian */
    return cl->GetDeviceInfo(id, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

/* Fills a device. Returns false if it cannot be used. */
static bool describe(lg_device *d, const linnet_host *host, cl_device_id id, int number) {
    const lg_cl *cl = d->cl;
    char extensions[4096], version[128], driver[128];
    d->id = id;
    snprintf(d->name, sizeof d->name, number > 0 ? "opencl:%d" : "opencl", number); /* as a user types it */
    if (!number_of(cl, id, CL_DEVICE_AVAILABLE) || !number_of(cl, id, CL_DEVICE_ENDIAN_LITTLE)) return false;
    text_of(cl, id, CL_DEVICE_NAME, d->hardware, sizeof d->hardware);
    text_of(cl, id, CL_DEVICE_VERSION, version, sizeof version);
    text_of(cl, id, CL_DRIVER_VERSION, driver, sizeof driver);
    text_of(cl, id, CL_DEVICE_EXTENSIONS, extensions, sizeof extensions);
    snprintf(d->driver, sizeof d->driver, "%s, driver %s", version, driver);
    d->memory = number_of(cl, id, CL_DEVICE_GLOBAL_MEM_SIZE);
    d->largest = number_of(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->alignment = number_of(cl, id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    if (d->alignment < 64 || (d->alignment & (d->alignment - 1)) != 0) d->alignment = 64;
    d->unified = number_of(cl, id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
    d->rounds_divisions = (number_of(cl, id, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    lg_machine *m = &d->machine;
    m->host = host;
    m->language = LINNET_SOURCE_OPENCL;
    m->f64 = strstr(extensions, "cl_khr_fp64") != NULL;
    m->f16 = strstr(extensions, "cl_khr_fp16") != NULL;
    m->is_cpu = (number_of(cl, id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
    m->most_items = (size_t)number_of(cl, id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    m->local_bytes = (size_t)number_of(cl, id, CL_DEVICE_LOCAL_MEM_SIZE);
    m->prefer = d->options.prefer;
    const double units = (double)number_of(cl, id, CL_DEVICE_MAX_COMPUTE_UNITS);
    const double clock = (double)number_of(cl, id, CL_DEVICE_MAX_CLOCK_FREQUENCY) / 1000; /* cycles per nanosecond */
    m->macs = units * (clock > 0 ? clock : 0.5) * (m->is_cpu ? 4 : 16);
    m->bandwidth = m->is_cpu || d->unified ? 10 : 50;
    m->launch_ns = 10000;
    snprintf(d->features, sizeof d->features, "%s%s%s", m->f16 ? "f16 " : "", m->f64 ? "f64 " : "",
             d->unified ? "shared-memory" : "");
    const size_t length = strlen(d->features);
    if (length > 0 && d->features[length - 1] == ' ') d->features[length - 1] = 0;
    if (m->most_items < 64) return false;
    cl_int code = CL_SUCCESS;
    d->context = cl->CreateContext(NULL, 1, &id, NULL, NULL, &code);
    if (code != CL_SUCCESS) return false;
    pthread_mutex_init(&d->lock, NULL);
    lg_programs_init(&d->programs);
    lg_failures_init(&d->failures);
    d->table = (linnet_device){.struct_size = sizeof d->table,
                               .version = LINNET_DEVICE_VERSION,
                               .name = d->name,
                               .context = d,
                               .limits = limits,
                               .cost = cost,
                               .explain = explain,
                               .about = about};
    if (d->options.memory == LG_MEMORY_DEFAULT) d->options.memory = d->unified ? LG_COPIED : LG_PINNED;
    lg_memory_functions(&d->table);
    lg_host_memory_functions(&d->table, d->options.memory);
    lg_work_functions(&d->table);
    return true;
}

enum { MOST_PLATFORMS = 16 };

static int collect(const lg_cl *cl, cl_device_id *out) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint n_platforms = 0;
    int n = 0;
    if (cl->GetPlatformIDs(MOST_PLATFORMS, platforms, &n_platforms) != CL_SUCCESS) return 0;
    /* Lists GPUs first, so that opencl:0 is a GPU if the machine has one. */
    for (int gpus = 1; gpus >= 0; --gpus)
        for (cl_uint p = 0; p < n_platforms && p < MOST_PLATFORMS; ++p) {
            cl_device_id ids[LG_MOST_DEVICES];
            cl_uint count = 0;
            if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, LG_MOST_DEVICES, ids, &count) != CL_SUCCESS)
                continue;
            for (cl_uint i = 0; i < count && i < LG_MOST_DEVICES && n < LG_MOST_DEVICES; ++i)
                if (((number_of(cl, ids[i], CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0) == (gpus == 1))
                    out[n++] = ids[i];
        }
    return n;
}

static void find(const linnet_host *host, const lg_options *options, lg_set *out) {
    cl_device_id ids[LG_MOST_DEVICES];
    const lg_cl *cl = lg_cl_open(&out->missing);
    if (cl == NULL) return;
    const int n = collect(cl, ids);
    for (int i = 0; i < n; ++i) {
        lg_device *d = calloc(1, sizeof *d);
        if (d == NULL) continue;
        d->cl = cl, d->options = *options;
        if (describe(d, host, ids[i], out->count)) {
            out->devices[out->count++] = &d->table;
        } else {
            out->missing = "a device of OpenCL cannot be used: it is not available, big-endian, or has work groups of "
                           "less than 64 items; `clinfo` shows it";
            free(d);
        }
    }
    if (n == 0)
        out->missing =
            "OpenCL is installed, but no driver names a device; install the driver of the GPU, or the Debian "
            "package pocl-opencl-icd, which computes on the processor; `clinfo` lists what there is";
}

EXPORT int linnet_extension_devices(const linnet_host *host, const char *options, linnet_device_list *list) {
    static const lg_backend backend = {"OpenCL", LG_HAS_F16 | LG_HAS_SHARED, find};
    return lg_list_devices(&backend, host, options, list);
}
