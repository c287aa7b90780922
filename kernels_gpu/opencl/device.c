/* device.c - the devices of OpenCL: what is there, options, limits, costs, and the texts of failures. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/opencl/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- what a device says ------------------------------------------------------------------------------------------ */

int lg_failure(lg_device *d, const char *format, ...) {
    enum { MOST = sizeof d->failures / sizeof *d->failures };
    char text[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int code = LG_NO_MEMORY;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->n_failures; ++i)
        if (strcmp(d->failures[i], text) == 0) code = LG_FIRST_TEXT + i;
    if (code == LG_NO_MEMORY) {
        char *kept = d->n_failures < MOST ? strdup(text) : NULL; /* explain's texts live as long as the device */
        if (kept != NULL) {
            d->failures[d->n_failures] = kept;
            code = LG_FIRST_TEXT + d->n_failures++;
        } else if (d->n_failures == MOST) {
            code = LG_FIRST_TEXT + MOST - 1;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return code;
}

static const char *explain(void *context, int code) {
    lg_device *d = context;
    if (code < 0) return lg_cl_error(code);
    if (code == LG_BAD_STEP) return "the step is not one that the device has claimed";
    pthread_mutex_lock(&d->lock); /* other queues may add texts */
    const bool known = code >= LG_FIRST_TEXT && code - LG_FIRST_TEXT < d->n_failures;
    const char *text = known ? d->failures[code - LG_FIRST_TEXT] : "there is no host memory";
    pthread_mutex_unlock(&d->lock);
    return text;
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
    lg_device *d = context;
    double ns = -1;
    lg_step *s = malloc(sizeof *s);
    if (s == NULL) return -1;
    if (!lg_step_open(s, &d->machine, step) || lg_choose(s, &ns) == NULL) ns = -1;
    free(s);
    return ns < 0                ? -1
           : d->options.modelled ? ns
                                 : 1e-6 * ns; /* a device that was asked for gets all that it can run */
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

/* ---- options ----------------------------------------------------------------------------------------------------- */

static int memory_of(const char *name) {
    return strcmp(name, "copied") == 0   ? LG_COPIED
           : strcmp(name, "pinned") == 0 ? LG_PINNED
           : strcmp(name, "shared") == 0 ? LG_SHARED
                                         : LG_MEMORY_DEFAULT;
}

/* Reads "f16=on,cache=DIR". Returns false with the reason in `why`. */
static bool read_options(const char *text, lg_options *out, char *why, size_t size) {
    *out = (lg_options){.cached = true};
    if (!lg_cache_folder(out->folder, sizeof out->folder)) out->cached = false;
    while (*text != 0) {
        const size_t length = strcspn(text, ",");
        char item[1100], *value;
        if (length >= sizeof item) {
            snprintf(why, size, "an option of the OpenCL device is longer than %zu characters", sizeof item - 1);
            return false;
        }
        memcpy(item, text, length);
        item[length] = 0;
        text += length + (text[length] == ',');
        value = strchr(item, '=');
        if (value != NULL) *value++ = 0;
        const bool on = value != NULL && strcmp(value, "on") == 0, off = value != NULL && strcmp(value, "off") == 0;
        if (strcmp(item, "f16") == 0 && (on || off)) {
            out->f16 = on;
        } else if (strcmp(item, "place") == 0 && value != NULL &&
                   (strcmp(value, "cost") == 0 || strcmp(value, "all") == 0)) {
            out->modelled = value[0] == 'c';
        } else if (strcmp(item, "cache") == 0 && value != NULL && value[0] != 0) {
            out->cached = !off;
            if (!off && !(on && out->folder[0] != 0)) snprintf(out->folder, sizeof out->folder, "%s", value);
        } else if (strcmp(item, "memory") == 0 && value != NULL && memory_of(value) != LG_MEMORY_DEFAULT) {
            out->memory = memory_of(value);
        } else if (strcmp(item, "kernel") == 0 && value != NULL) {
            snprintf(out->prefer, sizeof out->prefer, "%s", value);
        } else {
            snprintf(why, size,
                     "the OpenCL device has no option '%s%s%.200s'; it has f16=on|off, place=all|cost, "
                     "cache=on|off|FOLDER, memory=copied|pinned|shared and kernel=NAME",
                     item, value != NULL ? "=" : "", value != NULL ? value : "");
            return false;
        }
    }
    return true;
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

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

/* Fills a device; false if it cannot be used. */
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
    const double clock = (double)number_of(cl, id, CL_DEVICE_MAX_CLOCK_FREQUENCY) / 1000; /* per nanosecond */
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

/* The devices for one text of options. */
typedef struct set {
    struct set *next;
    const char *options;
    const linnet_device **devices;
    int count;
    const char *missing;
} set;

static set *sets;
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;

enum { MOST_PLATFORMS = 16, MOST_DEVICES = 32 };

static int collect(const lg_cl *cl, cl_device_id *out) {
    cl_platform_id platforms[MOST_PLATFORMS];
    cl_uint n_platforms = 0;
    int n = 0;
    if (cl->GetPlatformIDs(MOST_PLATFORMS, platforms, &n_platforms) != CL_SUCCESS) return 0;
    /* GPUs first, so that opencl:0 is one where the machine has any. */
    for (int gpus = 1; gpus >= 0; --gpus)
        for (cl_uint p = 0; p < n_platforms && p < MOST_PLATFORMS; ++p) {
            cl_device_id ids[MOST_DEVICES];
            cl_uint count = 0;
            if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST_DEVICES, ids, &count) != CL_SUCCESS) continue;
            for (cl_uint i = 0; i < count && i < MOST_DEVICES && n < MOST_DEVICES; ++i)
                if (((number_of(cl, ids[i], CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0) == (gpus == 1))
                    out[n++] = ids[i];
        }
    return n;
}

static set *make_set(const linnet_host *host, const char *text, const lg_options *options) {
    cl_device_id ids[MOST_DEVICES];
    set *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->options = strdup(text);
    made->devices = calloc(MOST_DEVICES, sizeof *made->devices);
    const lg_cl *cl = lg_cl_open(&made->missing);
    if (made->options == NULL || made->devices == NULL) { /* not kept: the next call tries again */
        free((void *)(uintptr_t)made->options);
        free(made->devices);
        free(made);
        return NULL;
    }
    if (cl == NULL) return made;
    const int n = collect(cl, ids);
    for (int i = 0; i < n; ++i) {
        lg_device *d = calloc(1, sizeof *d);
        if (d == NULL) continue;
        d->cl = cl, d->options = *options;
        if (describe(d, host, ids[i], made->count)) {
            made->devices[made->count++] = &d->table;
        } else {
            made->missing = "a device of OpenCL cannot be used: it is not available, big-endian, or has work groups of "
                            "less than 64 items; `clinfo` shows it";
            free(d);
        }
    }
    if (n == 0)
        made->missing =
            "OpenCL is installed, but no driver names a device; install the driver of the GPU, or the Debian "
            "package pocl-opencl-icd, which computes on the processor; `clinfo` lists what there is";
    return made;
}

EXPORT int linnet_extension_devices(const linnet_host *host, const char *options, linnet_device_list *list) {
    static _Thread_local char why[1500];
    lg_options read;
    if (!read_options(options, &read, why, sizeof why)) {
        list->missing = why;
        return 1;
    }
    pthread_mutex_lock(&sets_lock);
    set *found = sets;
    while (found != NULL && strcmp(found->options, options) != 0) found = found->next;
    if (found == NULL) {
        found = make_set(host, options, &read);
        if (found != NULL) found->next = sets, sets = found;
    }
    pthread_mutex_unlock(&sets_lock);
    if (found == NULL) {
        list->missing = "there is no host memory";
        return 1;
    }
    list->count = found->count;
    list->devices = found->devices;
    list->missing = found->missing;
    return 0;
}
