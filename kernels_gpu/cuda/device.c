/* device.c - finds the devices of CUDA, and gives their limits and costs. */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/common/choose.h"
#include "kernels_gpu/common/failures.h"
#include "kernels_gpu/common/layout.h"
#include "kernels_gpu/common/library.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/cuda/context.h"
#include "kernels_gpu/cuda/cu.h"
#include "kernels_gpu/cuda/memory.h"
#include "kernels_gpu/cuda/pack.h"
#include "kernels_gpu/cuda/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const char *explain(void *context, int code) {
    lg_device *d = context;
    const char *name = NULL;
    if (code >= 0 || d->cu == NULL) return lg_failure_text(&d->failures, code);
    if (d->cu->GetErrorString(-code, &name) != CUDA_SUCCESS || name == NULL) return "an unknown error of CUDA";
    return name;
}

static int limits(void *context, linnet_device_limits *out) {
    const lg_device *d = context;
    out->alignment = 256;
    out->padding = 64;
    out->epilogues = 1;
    out->in_place = 1;
    out->transfer_ns = d->options.modelled ? 10000 : 0;
    out->transfer_rate = d->options.modelled ? 12000 : 0;
    return 0;
}

static double cost(void *context, const linnet_step *step) {
    const lg_device *d = context;
    if (!d->compiles && d->pack.count == 0) return -1; /* `claim` checks whether the pack has the program */
    return lg_cost(&d->machine, d->options.modelled, step);
}

static uint32_t propose(void *context, const linnet_step *step, int output) {
    const lg_device *d = context;
    lg_step *s = malloc(sizeof *s);
    const uint32_t layout = s != NULL && lg_step_open(s, &d->machine, step) ? lg_propose_layout(s, output) : 0;
    free(s);
    return layout;
}

static bool accept(void *context, const linnet_step *step, int input, uint32_t layout) {
    const lg_device *d = context;
    lg_step *s = malloc(sizeof *s);
    const bool accepts = s != NULL && lg_step_open(s, &d->machine, step) && lg_accepts_layout(s, input, layout);
    free(s);
    return accepts;
}

static bool describe_layout(void *context, uint32_t layout, int rank, linnet_layout *out) {
    (void)context;
    return lg_describe_layout(layout, rank, out);
}

static int about(void *context, linnet_device_about *out) {
    lg_device *d = context;
    size_t available = 0, total = 0;
    out->kind = LINNET_DEVICE_GPU;
    out->hardware = d->hardware;
    out->driver = d->driver;
    out->features = d->features;
    out->memory = d->memory;
    if (lg_enter(d) != 0) return 0;
    if (d->cu->MemGetInfo(&available, &total) == CUDA_SUCCESS) out->memory_free = available;
    lg_leave(d);
    return 0;
}

/* ---- finding devices
 * ----------------------------------------------------------------------------------------------- */

static int number_of(const lg_cu *cu, CUdevice id, int what) {
    int value = 0;
    return cu->DeviceGetAttribute(&value, what, id) == CUDA_SUCCESS ? value : 0;
}

/* Sets the facts about a GPU that the choice of kernels needs. clock in GHz, bandwidth in bytes per nanosecond. */
static void set_machine(lg_device *d, const linnet_host *host, int compute, int units, double clock, double bandwidth,
                        size_t shared) {
    d->machine = (lg_machine){.host = host,
                              .language = LINNET_SOURCE_CUDA,
                              .f64 = true,
                              .f16 = true,
                              .most_items = 1024,
                              .local_bytes = 48 << 10, /* every GPU gives this much without a special request */
                              .macs = units * clock * 128,
                              .bandwidth = bandwidth,
                              .launch_ns = 2000,
                              .prefer = d->options.prefer,
                              .compute = compute,
                              .units = units,
                              .shared_bytes = shared};
    /* Later processors do not have the matrix instructions of 9.0. Therefore the name of its architecture ends in
     * "a". */
    snprintf(d->architecture, sizeof d->architecture, "sm_%d%s", compute, compute == 90 ? "a" : "");
}

static void describe_machine(lg_device *d, const linnet_host *host, CUdevice id) {
    const lg_cu *cu = d->cu;
    const int major = number_of(cu, id, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    const int minor = number_of(cu, id, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    const double clock = number_of(cu, id, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1e6;
    const double memory_clock = number_of(cu, id, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1e6;
    const double bus = number_of(cu, id, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
    set_machine(d, host, 10 * major + minor, number_of(cu, id, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                clock > 0 ? clock : 1, memory_clock > 0 && bus > 0 ? 2 * memory_clock * bus : 100,
                (size_t)number_of(cu, id, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
}

/* Describes a GPU that this machine does not have: a common one of the architecture. */
static void imagine_machine(lg_device *d, const linnet_host *host) {
    static const struct {
        int compute, units;
        double clock, bandwidth;
        int shared_kb;
    } known[] = {{90, 132, 1.98, 3350, 227},
                 {80, 108, 1.41, 1555, 163},
                 {87, 16, 1.3, 204, 163},
                 {75, 40, 1.59, 320, 64},
                 {50, 16, 1.2, 100, 48}};
    size_t i = 0;
    while (known[i].compute != d->options.compute && known[i].compute != 50) ++i;
    set_machine(d, host, d->options.compute, known[i].units, known[i].clock, known[i].bandwidth,
                (size_t)known[i].shared_kb << 10);
    snprintf(d->hardware, sizeof d->hardware, "a GPU of architecture %d.%d that is not there", d->options.compute / 10,
             d->options.compute % 10);
}

static void set_table(lg_device *d, const char *more) {
    lg_programs_init(&d->programs);
    lg_failures_init(&d->failures);
    snprintf(d->features, sizeof d->features, "f16 bf16 f64 %s%s", d->architecture, more);
    d->table = (linnet_device){.struct_size = sizeof d->table,
                               .version = LINNET_DEVICE_VERSION,
                               .name = d->name,
                               .context = d,
                               .limits = limits,
                               .cost = cost,
                               .propose = propose,
                               .accept = accept,
                               .describe = describe_layout,
                               .explain = explain,
                               .about = about};
    if (d->options.memory == LG_MEMORY_DEFAULT) d->options.memory = LG_PINNED;
    lg_memory_functions(&d->table, d->options.memory);
    lg_work_functions(&d->table);
}

/* Fills a device. Returns false if the GPU cannot be used. */
static bool describe(lg_device *d, const linnet_host *host, CUdevice id, int number, const lg_nvrtc *nvrtc) {
    const lg_cu *cu = d->cu;
    size_t memory = 0;
    int version = 0;
    snprintf(d->name, sizeof d->name, number > 0 ? "cuda:%d" : "cuda", number); /* as a user types it */
    if (cu->DeviceGetName(d->hardware, sizeof d->hardware, id) != CUDA_SUCCESS) return false;
    if (cu->DeviceTotalMem(&memory, id) != CUDA_SUCCESS || cu->DriverGetVersion(&version) != CUDA_SUCCESS) return false;
    d->memory = memory;
    snprintf(d->driver, sizeof d->driver, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    if (nvrtc != NULL) {
        const size_t length = strlen(d->driver);
        snprintf(d->driver + length, sizeof d->driver - length, ", NVRTC %d.%d", nvrtc->major, nvrtc->minor);
    }
    describe_machine(d, host, id);
    if (d->machine.compute < 50 || d->machine.units <= 0 || d->machine.shared_bytes == 0) return false;
    if (cu->DevicePrimaryCtxRetain(&d->context, id) != CUDA_SUCCESS) return false;
    set_table(d, number_of(cu, id, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0 ? " shared-memory" : "");
    return true;
}

/* Returns the text that says what is missing without NVRTC. The text stays valid as long as the process. */
static const char *without_compiler(const char *why, const lg_options *options, const lg_programs *pack, int version) {
    char text[2400];
    const char *where = options->programs[0] != 0 ? options->programs : "liblinnet_cuda";
    if (pack->count == 0)
        snprintf(text, sizeof text, "%s. Until then nothing runs on the GPU", why);
    else if (version < pack->cuda)
        snprintf(text, sizeof text,
                 "%s. Until then nothing runs on the GPU: the programs in %s need a driver of CUDA %d.%d, and this one "
                 "is of %d.%d",
                 why, where, pack->cuda / 1000, pack->cuda % 1000 / 10, version / 1000, version % 1000 / 10);
    else
        snprintf(text, sizeof text,
                 "%s. Until then only those steps run on the GPU whose programs are among the %zu in %s", why,
                 pack->count, where);
    const char *kept = strdup(text);
    return kept != NULL ? kept : why;
}

static void find(const linnet_host *host, const lg_options *options, lg_set *out) {
    const char *no_compiler = NULL;
    char why[1300];
    lg_programs pack;
    int count = 0, version = 0;
    if (!lg_programs_open(options->programs, &pack, why, sizeof why)) {
        out->missing = strdup(why);
        if (options->programs[0] != 0) return; /* the user has named this pack, so it must be usable */
    }
    if (options->compute != 0) {
        lg_device *d = calloc(1, sizeof *d);
        if (d == NULL) return;
        d->options = *options, d->pack = pack, d->compiles = options->programs[0] == 0;
        snprintf(d->name, sizeof d->name, "cuda");
        imagine_machine(d, host);
        set_table(d, "");
        out->devices[out->count++] = &d->table;
        return;
    }
    const lg_cu *cu = lg_cu_open(&out->missing);
    if (cu == NULL) return;
    const lg_nvrtc *nvrtc = lg_nvrtc_open(&no_compiler);
    if (cu->DeviceGetCount(&count) != CUDA_SUCCESS) count = 0;
    if (cu->DriverGetVersion(&version) != CUDA_SUCCESS) version = 0;
    for (int i = 0; i < count && i < LG_MOST_DEVICES; ++i) {
        CUdevice id = 0;
        lg_device *d = calloc(1, sizeof *d);
        if (d == NULL) continue;
        d->cu = cu, d->options = *options, d->compiles = nvrtc != NULL;
        if (version >= pack.cuda) d->pack = pack;
        if (cu->DeviceGet(&id, i) == CUDA_SUCCESS && describe(d, host, id, out->count, nvrtc)) {
            out->devices[out->count++] = &d->table;
        } else {
            out->missing =
                "a GPU cannot be used: CUDA makes no context on it, or does not tell its properties; `nvidia-smi` "
                "shows its state";
            free(d);
        }
    }
    if (nvrtc == NULL) out->missing = without_compiler(no_compiler, options, &pack, version);
    if (count == 0)
        out->missing = "the CUDA driver is installed, but finds no GPU; `nvidia-smi` lists what there is, and "
                       "CUDA_VISIBLE_DEVICES can hide one";
}

EXPORT int linnet_extension_devices(const linnet_host *host, const char *options, linnet_device_list *list) {
    static const lg_backend backend = {"CUDA", LG_HAS_GRAPHS | LG_HAS_TEXTS | LG_HAS_FOR | LG_HAS_PROGRAMS, find};
    return lg_list_devices(&backend, host, options, list);
}
