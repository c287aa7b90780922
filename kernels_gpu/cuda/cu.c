/* cu.c - opens libcuda and libnvrtc at run time (kernels_gpu/cuda/cu.h). */
#include "kernels_gpu/cuda/cu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a field of a table is, and the symbol that fills it. */
typedef struct wanted {
    const char *symbol;
    void *field;
} wanted;

/* Opens the library that the environment variable names, or the first of the names. NULL, with the loader's reason. */
static void *open_one(const char *variable, const char *const *names, size_t count, char *why, size_t size) {
    const char *chosen = getenv(variable), *text;
    why[0] = 0;
    if (chosen != NULL && chosen[0] != 0) {
        void *library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
        text = library == NULL ? dlerror() : NULL;
        if (library == NULL)
            snprintf(why, size, "%s names a library that cannot be opened (%s); correct or unset it", variable,
                     text != NULL ? text : "not found");
        return library;
    }
    for (size_t i = 0; i < count; ++i) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL); /* never closed: drivers do not survive it */
        if (library != NULL) return library;
        text = dlerror();
        if (i == 0) snprintf(why, size, "%s", text != NULL ? text : "not found");
    }
    return NULL;
}

/* Fills the fields. Returns the symbol that the library lacks, or NULL. */
static const char *fill(void *library, const wanted *symbols, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        void *symbol = dlsym(library, symbols[i].symbol);
        if (symbol == NULL) return symbols[i].symbol;
        memcpy(symbols[i].field, &symbol, sizeof symbol);
    }
    return NULL;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static pthread_once_t cu_opened = PTHREAD_ONCE_INIT;
static lg_cu cu;
static int have_cu;
static char cu_reason[700];

static void open_cu(void) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/lib/wsl/lib/libcuda.so.1"};
    const wanted symbols[] = {
#define LG_CU_LINE(name, symbol, parameters) {symbol, &cu.name},
        LG_CU_FUNCTIONS(LG_CU_LINE)
#undef LG_CU_LINE
    };
    char why[400];
    void *library = open_one("LINNET_CUDA", names, sizeof names / sizeof *names, why, sizeof why);
    if (library == NULL) {
        snprintf(cu_reason, sizeof cu_reason,
                 strncmp(why, "LINNET_CUDA", 11) == 0
                     ? "%s"
                     : "there is no CUDA driver on this machine (%s); install the driver of the NVIDIA GPU",
                 why);
        return;
    }
    const char *lacks = fill(library, symbols, sizeof symbols / sizeof *symbols);
    if (lacks != NULL) {
        snprintf(cu_reason, sizeof cu_reason,
                 "the CUDA driver has no %s: it is older than CUDA 12.0; install a newer driver of the GPU", lacks);
        return;
    }
    const wanted map = {"cuTensorMapEncodeTiled", &cu.TensorMapEncodeTiled};
    (void)fill(library, &map, 1);
    const CUresult code = cu.Init(0);
    const char *text = NULL;
    if (code != CUDA_SUCCESS) {
        if (cu.GetErrorString(code, &text) != CUDA_SUCCESS || text == NULL) text = "an unknown error";
        snprintf(cu_reason, sizeof cu_reason,
                 "the CUDA driver is installed, but cannot start (%s); `nvidia-smi` shows what is wrong", text);
        return;
    }
    have_cu = 1;
}

const lg_cu *lg_cu_open(const char **missing) {
    pthread_once(&cu_opened, open_cu);
    *missing = have_cu ? NULL : cu_reason;
    return have_cu ? &cu : NULL;
}

/* ---- the compiler ------------------------------------------------------------------------------------------------ */

static pthread_once_t nvrtc_opened = PTHREAD_ONCE_INIT;
static lg_nvrtc nvrtc;
static int have_nvrtc;
static char nvrtc_reason[700];

static void open_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const wanted symbols[] = {
#define LG_NVRTC_LINE(name, symbol, parameters) {symbol, &nvrtc.name},
        LG_NVRTC_FUNCTIONS(LG_NVRTC_LINE)
#undef LG_NVRTC_LINE
    };
    char why[400];
    void *library = open_one("LINNET_NVRTC", names, sizeof names / sizeof *names, why, sizeof why);
    if (library == NULL) {
        snprintf(nvrtc_reason, sizeof nvrtc_reason,
                 strncmp(why, "LINNET_NVRTC", 12) == 0
                     ? "%s"
                     : "there is no NVRTC, which compiles kernels (%s); install the CUDA toolkit, or with pip "
                       "nvidia-cuda-nvrtc",
                 why);
        return;
    }
    const char *lacks = fill(library, symbols, sizeof symbols / sizeof *symbols);
    if (lacks != NULL || nvrtc.Version(&nvrtc.major, &nvrtc.minor) != NVRTC_SUCCESS) {
        snprintf(nvrtc_reason, sizeof nvrtc_reason, "NVRTC has no %s: it is older than CUDA 11.1; install a newer one",
                 lacks != NULL ? lacks : "version");
        return;
    }
    have_nvrtc = 1;
}

const lg_nvrtc *lg_nvrtc_open(const char **missing) {
    pthread_once(&nvrtc_opened, open_nvrtc);
    *missing = have_nvrtc ? NULL : nvrtc_reason;
    return have_nvrtc ? &nvrtc : NULL;
}
