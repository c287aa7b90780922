/* program.c - programs of the CUDA backend: NVRTC compiles each text once per device. It is not needed if the pack, the
 * host's cache or the user's folder has the compiled code already. */
#include "kernels_gpu/cuda/program.h"
#include "kernels_gpu/common/cache.h"
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/common/text.h"
#include "kernels_gpu/cuda/cu.h"
#include "kernels_gpu/cuda/pack.h"

#include <stdio.h>
#include <stdlib.h>

int lg_largest_axis(const lg_launch *launch) {
    size_t most = 65535;
    int axis = 0;
    for (int k = 1; k < 3; ++k) {
        const size_t blocks = (launch->global[k] + launch->local[k] - 1) / launch->local[k];
        if (blocks > most) most = blocks, axis = k;
    }
    return axis;
}

/* Returns the text that the compiler gets: defines LG_AXIS_0 and so on in front, because the dialect uses these names.
 * The caller frees it. */
static char *text_of(const lg_device *d, const lg_launch *launch) {
    lg_text text = {0};
    const int largest = lg_largest_axis(launch);
    char *whole = lg_whole_text(&d->machine, launch);
    if (whole == NULL) return NULL;
    for (int k = 0; k < 3; ++k)
        lg_put(&text, "#define LG_AXIS_%d %c\n", k, k == largest ? 'x' : k == 0 ? "xyz"[largest] : "xyz"[k]);
    lg_put_text(&text, whole);
    free(whole);
    if (text.failed) lg_free(&text);
    return text.at;
}

static void write_text(const lg_device *d, const char *text, const uint64_t hash[2]) {
    char path[1400];
    snprintf(path, sizeof path, "%s/%016llx%016llx.cu", d->options.texts, (unsigned long long)hash[0],
             (unsigned long long)hash[1]);
    FILE *file = fopen(path, "w");
    if (file == NULL) return;
    fputs(text, file);
    fclose(file);
}

void lg_show(const lg_device *d, const lg_launch *launch) {
    uint64_t hash[2];
    char *text = launch->source.failed || launch->source.at == NULL ? NULL : text_of(d, launch);
    if (text == NULL) return;
    lg_hash(text, hash);
    write_text(d, text, hash);
    free(text);
}

bool lg_has_programs(const lg_device *d, const lg_plan *plan) {
    bool has = !plan->failed;
    for (int i = 0; i < plan->n && has; ++i) {
        uint64_t hash[2];
        const lg_launch *launch = &plan->launches[i];
        char *text = launch->source.failed || launch->source.at == NULL ? NULL : text_of(d, launch);
        if (text != NULL) lg_hash(text, hash);
        has = text != NULL && lg_programs_find(&d->pack, hash) != NULL;
        free(text);
    }
    return has;
}

/* ---- the compiler ------------------------------------------------------------------------------------------------ */

/* Compiles a text to a cubin, which the caller frees. */
static int compile(lg_device *d, const char *text, unsigned char **data, size_t *size) {
    const char *missing = NULL;
    const lg_nvrtc *nvrtc = lg_nvrtc_open(&missing);
    nvrtcProgram program = NULL;
    char architecture[48];
    *data = NULL;
    if (nvrtc == NULL) return lg_failure(&d->failures, "%s", missing);
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", d->architecture);
    /* Without fused multiply-adds, integer results that are computed through floats equal those of the CPU. */
    const char *const options[] = {architecture, "--fmad=false", "--std=c++17", "-default-device"};
    int code = nvrtc->CreateProgram(&program, text, "linnet.cu", 0, NULL, NULL);
    if (code != NVRTC_SUCCESS) return lg_failure(&d->failures, "NVRTC cannot make a program: error %d", code);
    code = nvrtc->CompileProgram(program, sizeof options / sizeof *options, options);
    if (code != NVRTC_SUCCESS) {
        size_t length = 0;
        char *log = NULL;
        if (nvrtc->GetProgramLogSize(program, &length) == NVRTC_SUCCESS) log = calloc(1, length + 1);
        if (log != NULL) nvrtc->GetProgramLog(program, log);
        code = lg_failure(&d->failures, "NVRTC cannot compile a kernel for %s: %s", d->architecture,
                          log != NULL ? log : "no log");
        free(log);
    } else {
        code = nvrtc->GetCUBINSize(program, size);
        if (code == NVRTC_SUCCESS) *data = malloc(*size + 1);
        if (code == NVRTC_SUCCESS && *data != NULL) code = nvrtc->GetCUBIN(program, (char *)*data);
        if (code != NVRTC_SUCCESS)
            code = lg_failure(&d->failures, "NVRTC gives no code for %s: error %d", d->architecture, code);
        else if (*data == NULL)
            code = LG_NO_MEMORY;
    }
    nvrtc->DestroyProgram(&program);
    return code;
}

/* Loads the module of a text, from the cache if it is there. */
static int load(lg_device *d, const char *text, const linnet_program_cache *host, CUmodule *out) {
    const char *missing = NULL;
    const lg_nvrtc *nvrtc = lg_nvrtc_open(&missing);
    char key[200];
    uint64_t hash[2];
    unsigned char *data = NULL;
    size_t size = 0;
    lg_hash(text, hash); /* the hash covers the whole text, because another version of linnet writes another text */
    snprintf(key, sizeof key, "cuda-%016llx%016llx-%s-%d.%d", (unsigned long long)hash[0], (unsigned long long)hash[1],
             d->architecture, nvrtc != NULL ? nvrtc->major : 0, nvrtc != NULL ? nvrtc->minor : 0);
    if (d->options.texts[0] != 0) write_text(d, text, hash);
    const unsigned char *ready = lg_programs_find(&d->pack, hash);
    if (ready != NULL && d->cu->ModuleLoadData(out, ready) == CUDA_SUCCESS) return 0;
    size = lg_cache_load(host, lg_folder_of(&d->options), key, &data);
    if (data != NULL && d->cu->ModuleLoadData(out, data) == CUDA_SUCCESS) {
        free(data);
        return 0;
    }
    free(data);                                      /* there was no code, or it was damaged */
    if (nvrtc == NULL) return LINNET_DEVICE_REFUSES; /* the pack's code is not for this GPU or driver */
    int code = compile(d, text, &data, &size);
    if (code == 0) code = lg_code(d->cu->ModuleLoadData(out, data));
    if (code == 0) lg_cache_store(host, lg_folder_of(&d->options), key, data, size);
    free(data);
    return code;
}

int lg_build(lg_device *d, const lg_launch *launch, const linnet_program_cache *host_cache, CUfunction *out) {
    uint64_t hash[2];
    if (launch->source.failed || launch->source.at == NULL) return LG_NO_MEMORY;
    lg_hash(launch->source.at, hash); /* this part determines the whole text, which takes longer to write */
    hash[0] += (uint64_t)lg_largest_axis(launch);
    CUmodule module = lg_program_find(&d->programs, hash);
    if (module != NULL) return lg_code(d->cu->ModuleGetFunction(out, module, launch->kernel));
    char *text = text_of(d, launch);
    if (text == NULL) return LG_NO_MEMORY;
    int code = load(d, text, host_cache, &module);
    free(text);
    if (code != 0) return code;
    code = lg_code(d->cu->ModuleGetFunction(out, module, launch->kernel));
    if (code == 0 && !lg_program_keep(&d->programs, hash, module)) code = LG_NO_MEMORY;
    if (code != 0) d->cu->ModuleUnload(module);
    return code;
}
