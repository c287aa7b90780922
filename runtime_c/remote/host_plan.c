/* host_plan.c - plans a piece as the owner of the host permits: threads, memory and devices are the owner's. */
#include "remote/host_plan.h"

#include "remote/host_memory.h"

#include <stdlib.h>

linnet_status ln_host_plan(ln_host *host, linnet_model *model, int precision, linnet_plan **plan, linnet_error *error) {
    const ln_host_config *given = &host->config;
    linnet_plan_config config;
    linnet_plan_config_init(&config);
    config.threads = given->threads;
    config.allocator = &host->allocator;
    config.separate_outputs = true;
    config.whole_branches = true; /* a run of a piece plans nothing */
    config.precision = precision;
    config.tuning = given->tuning;
    config.max_bytes = given->max_bytes;
    config.devices = given->devices;
    config.device_count = given->device_count;
    const linnet_status status = linnet_plan_create(model, &config, plan, error);
    /* The words of the library are those of a session, whose limit the client did not set. */
    return status == LINNET_TOO_LARGE ? ln_host_no_memory(host, strtoull(error->got, NULL, 10), error) : status;
}
