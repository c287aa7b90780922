/* cu.c - opens libcuda and libnvrtc at run time (kernels_gpu/cuda/cu.h). */
#include "kernels_gpu/cuda/cu.h"
#include "kernels_gpu/common/driver.h"

#include <pthread.h>
#include <stdio.h>

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static pthread_once_t cu_opened = PTHREAD_ONCE_INIT;
static lg_cu cu;
static int have_cu;
static char cu_reason[700];

static void open_cu(void) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/lib/wsl/lib/libcuda.so.1"};
    const lg_symbol symbols[] = {
#define LG_CU_LINE(name, symbol, parameters) {symbol, &cu.name},
        LG_CU_FUNCTIONS(LG_CU_LINE)
#undef LG_CU_LINE
    };
    const lg_driver driver = {LG_LIBRARY_CUDA, names, sizeof names / sizeof *names,
                              "there is no CUDA driver on this machine", "install the driver of the NVIDIA GPU"};
    void *library = lg_driver_open(&driver, cu_reason, sizeof cu_reason);
    if (library == NULL) return;
    const char *lacks = lg_driver_fill(library, symbols, sizeof symbols / sizeof *symbols);
    if (lacks != NULL) {
        snprintf(cu_reason, sizeof cu_reason,
                 "the CUDA driver has no %s: it is older than CUDA 12.0; install a newer driver of the GPU", lacks);
        return;
    }
    const lg_symbol map = {"cuTensorMapEncodeTiled", &cu.TensorMapEncodeTiled};
    (void)lg_driver_fill(library, &map, 1);
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
    const lg_symbol symbols[] = {
#define LG_NVRTC_LINE(name, symbol, parameters) {symbol, &nvrtc.name},
        LG_NVRTC_FUNCTIONS(LG_NVRTC_LINE)
#undef LG_NVRTC_LINE
    };
    const lg_driver driver = {LG_LIBRARY_NVRTC, names, sizeof names / sizeof *names,
                              "there is no NVRTC, which compiles kernels",
                              "install the CUDA toolkit, or with pip nvidia-cuda-nvrtc"};
    void *library = lg_driver_open(&driver, nvrtc_reason, sizeof nvrtc_reason);
    if (library == NULL) return;
    const char *lacks = lg_driver_fill(library, symbols, sizeof symbols / sizeof *symbols);
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
