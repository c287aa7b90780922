/* program.c - programs of the OpenCL backend: each text is compiled once per device, and comes from the host's cache or
 * from the user's folder if another process has compiled it. */
#include "kernels_gpu/opencl/program.h"
#include "kernels_gpu/common/cache.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/common/text.h"
#include "kernels_gpu/opencl/cl.h"

#include <stdio.h>
#include <stdlib.h>

static const char *build_options(const lg_device *d) {
    return d->rounds_divisions ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
}

/* Builds a program. Frees the program on failure. */
static int build(lg_device *d, cl_program program, bool from_source) {
    char log[1500] = "";
    size_t length = 0;
    const cl_int code = d->cl->BuildProgram(program, 1, &d->id, build_options(d), NULL, NULL);
    if (code == CL_SUCCESS) return 0;
    d->cl->GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &length);
    char *whole = malloc(length + 1);
    if (whole != NULL) {
        d->cl->GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, length, whole, NULL);
        whole[length] = 0;
        snprintf(log, sizeof log, "%s", whole);
        free(whole);
    }
    d->cl->ReleaseProgram(program);
    return from_source ? lg_failure(&d->failures, "%s: the driver's compiler says: %s", lg_cl_error(code), log) : code;
}

static cl_program from_binary(lg_device *d, const unsigned char *data, size_t size) {
    cl_int code = CL_SUCCESS, status = CL_SUCCESS;
    cl_program program = d->cl->CreateProgramWithBinary(d->context, 1, &d->id, &size, &data, &status, &code);
    if (code != CL_SUCCESS || program == NULL) return NULL;
    if (status != CL_SUCCESS) {
        d->cl->ReleaseProgram(program);
        return NULL;
    }
    return build(d, program, false) == 0 ? program : NULL;
}

static unsigned char *binary_of(const lg_device *d, cl_program program, size_t *size) {
    unsigned char *data = NULL;
    *size = 0;
    if (d->cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL) != CL_SUCCESS || *size == 0)
        return NULL;
    data = malloc(*size);
    if (data != NULL && d->cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL) != CL_SUCCESS) {
        free(data);
        data = NULL;
    }
    return data;
}

static int make(lg_device *d, const char *text, const linnet_program_cache *host, cl_program *out) {
    char key[200];
    /* The hash covers the whole text, because another version of linnet writes another text. */
    uint64_t hash[2], driver[2];
    unsigned char *data = NULL;
    size_t size = 0;
    lg_text all = {0};
    lg_put(&all, "%s\n%s\n%s", d->hardware, d->driver, build_options(d));
    if (all.failed) return LG_NO_MEMORY;
    lg_hash(text, hash);
    lg_hash(all.at, driver);
    lg_free(&all);
    snprintf(key, sizeof key, "opencl-%016llx%016llx-%016llx", (unsigned long long)hash[0], (unsigned long long)hash[1],
             (unsigned long long)(driver[0] ^ driver[1]));
    size = lg_cache_load(host, lg_folder_of(&d->options), key, &data);
    *out = data != NULL && size > 0 ? from_binary(d, data, size) : NULL;
    free(data);
    if (*out != NULL) return 0;
    cl_int code = CL_SUCCESS;
    cl_program program = d->cl->CreateProgramWithSource(d->context, 1, &text, NULL, &code);
    if (code != CL_SUCCESS) return code;
    code = build(d, program, true);
    if (code != 0) return code;
    *out = program;
    if (host == NULL && !d->options.cached) return 0;
    data = binary_of(d, program, &size);
    if (data != NULL) lg_cache_store(host, lg_folder_of(&d->options), key, data, size);
    free(data);
    return 0;
}

int lg_build(lg_device *d, const lg_launch *launch, const linnet_program_cache *host_cache, cl_program *out) {
    uint64_t hash[2];
    if (launch->source.failed || launch->source.at == NULL) return LG_NO_MEMORY;
    lg_hash(launch->source.at, hash); /* this part determines the whole text, which takes longer to write */
    *out = lg_program_find(&d->programs, hash);
    if (*out != NULL) return 0;
    char *text = lg_whole_text(&d->machine, launch);
    if (text == NULL) return LG_NO_MEMORY;
    const int code = make(d, text, host_cache, out);
    free(text);
    if (code != 0 || lg_program_keep(&d->programs, hash, *out)) return code;
    d->cl->ReleaseProgram(*out);
    return LG_NO_MEMORY;
}
