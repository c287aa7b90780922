/* device_cost.c - what a plan asks a host before it decides what runs there. */
#include "remote/device_cost.h"

#include "remote/piece.h"

enum { ALIGNMENT = 64 };

static int limits(void *context, linnet_device_limits *out) {
    const ln_remote_device *d = context;
    out->alignment = ALIGNMENT;
    out->largest_buffer = d->welcome.most_bytes;
    return 0;
}

/* A host that was asked for gets all that it can run. */
static double cost(void *context, const linnet_step *step) {
    const ln_remote_device *d = context;
    linnet_step_counts counts;
    linnet_step_counts_init(&counts);
    if (!ln_piece_can(d->host, step) || d->host->step_get_counts(step, &counts) != LINNET_OK) return -1;
    return counts.cpu_ns >= 0 && counts.cpu_ns < 1e18 ? 1e-6 * counts.cpu_ns : -1;
}

static int claim(void *context, const linnet_step *const *steps, int count, linnet_claim *out) {
    (void)context, (void)steps;
    out->count = count;
    out->fused = out->packs = true;
    out->kernel = "remote";
    return 0;
}

static int about(void *context, linnet_device_about *out) {
    const ln_remote_device *d = context;
    out->kind = LINNET_DEVICE_OTHER;
    out->hardware = d->welcome.name;
    out->driver = "linnet-host";
    out->memory = d->welcome.most_bytes;
    return 0;
}

void ln_remote_cost_functions(linnet_device *functions) {
    functions->limits = limits;
    functions->cost = cost;
    functions->claim = claim;
    functions->about = about;
}
