/* host_predict.c - what a piece would cost on this host: it plans a file whose constants have not been sent. A plan
 * depends on the constants' sizes, and only on values that are so small that the tables have them. */
#define _GNU_SOURCE
#include "remote/host_predict.h"

#include "net/error.h"
#include "remote/host_plan.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

enum { MOST_FILE_BITS = 36 };

static linnet_status plan_it(ln_host *host, void *file, const host_sketch *sketch, uint64_t predicted[2],
                             linnet_error *error) {
    linnet_model *model = NULL;
    linnet_plan *plan = NULL;
    linnet_model_config config;
    linnet_plan_info info;
    linnet_model_config_init(&config);
    linnet_plan_info_init(&info);
    config.allocator = &host->allocator;
    config.verify = LINNET_VERIFY_NEVER; /* of the weights, which are not there */
    linnet_status status =
        linnet_model_open_memory(file, (size_t)sketch->file_size, LINNET_BORROW, &config, &model, error);
    if (status == LINNET_OK) status = ln_host_plan(host, model, sketch->precision, &plan, error);
    if (status == LINNET_OK) status = linnet_plan_get_info(plan, &info);
    predicted[0] = info.modelled_ns;
    predicted[1] = info.total - info.io; /* inputs and outputs are in buffers of the client */
    linnet_plan_free(plan);
    linnet_model_free(model);
    return status;
}

linnet_status ln_host_predict(ln_host *host, const host_sketch *sketch, uint64_t predicted[2], linnet_error *error) {
    if (sketch->size > sketch->file_size || sketch->file_size >> MOST_FILE_BITS != 0 || sketch->file_size > SIZE_MAX)
        return ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client sent a sketch whose sizes are not valid");
    /* The pages of the constants are zeros that take no memory, because nothing writes them. */
    const size_t size = sketch->file_size > 0 ? (size_t)sketch->file_size : 1;
    void *file = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file == MAP_FAILED)
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "the host has no address space for a sketch");
    if (sketch->size > 0) memcpy(file, sketch->bytes, (size_t)sketch->size);
    const linnet_status status = plan_it(host, file, sketch, predicted, error);
    munmap(file, size);
    return status;
}
