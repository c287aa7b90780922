/* cl.c - opens libOpenCL at run time and names its errors (kernels_gpu/opencl/cl.h). */
#include "kernels_gpu/opencl/cl.h"
#include "kernels_gpu/common/driver.h"

#include <pthread.h>
#include <stdio.h>

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static lg_cl functions;
static int have;
static char reason[700];

/* The names on Debian and similar systems, on Android, and on macOS. For a name without a slash, the loader uses its
 * own search path. */
static const char *const NAMES[] = {"libOpenCL.so.1",
                                    "libOpenCL.so",
                                    "/vendor/lib64/libOpenCL.so",
                                    "/system/vendor/lib64/libOpenCL.so",
                                    "/vendor/lib/libOpenCL.so",
                                    "/system/vendor/lib/libOpenCL.so",
                                    "/system/vendor/lib64/libPVROCL.so",
                                    "/system/vendor/lib/egl/libGLES_mali.so",
                                    "/System/Library/Frameworks/OpenCL.framework/OpenCL"};

static void open_library(void) {
    static const lg_driver driver = {LG_LIBRARY_OPENCL, NAMES, sizeof NAMES / sizeof *NAMES,
                                     "there is no OpenCL on this machine",
                                     "install a driver, for example the Debian packages ocl-icd-libopencl1 and "
                                     "pocl-opencl-icd (which computes on the "
                                     "processor), or the driver of the GPU"};
    const lg_symbol symbols[] = {
#define LG_CL_LINE(result, name, parameters) {"cl" #name, &functions.name},
        LG_CL_FUNCTIONS(LG_CL_LINE)
#undef LG_CL_LINE
    };
    void *library = lg_driver_open(&driver, reason, sizeof reason);
    if (library == NULL) return;
    const char *lacks = lg_driver_fill(library, symbols, sizeof symbols / sizeof *symbols);
    if (lacks != NULL) {
        snprintf(reason, sizeof reason,
                 "the OpenCL library has no %s: it is older than OpenCL 1.2; install a newer driver", lacks);
        return;
    }
    have = 1;
}

const lg_cl *lg_cl_open(const char **missing) {
    pthread_once(&opened, open_library);
    *missing = have ? NULL : reason;
    return have ? &functions : NULL;
}

const char *lg_cl_error(int code) {
    static const struct {
        int code;
        const char *name;
    } names[] = {{-1, "CL_DEVICE_NOT_FOUND"},
                 {-2, "CL_DEVICE_NOT_AVAILABLE"},
                 {-3, "CL_COMPILER_NOT_AVAILABLE"},
                 {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
                 {-5, "CL_OUT_OF_RESOURCES"},
                 {-6, "CL_OUT_OF_HOST_MEMORY"},
                 {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
                 {-11, "CL_BUILD_PROGRAM_FAILURE"},
                 {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
                 {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
                 {-30, "CL_INVALID_VALUE"},
                 {-33, "CL_INVALID_DEVICE"},
                 {-34, "CL_INVALID_CONTEXT"},
                 {-36, "CL_INVALID_COMMAND_QUEUE"},
                 {-38, "CL_INVALID_MEM_OBJECT"},
                 {-42, "CL_INVALID_BINARY"},
                 {-44, "CL_INVALID_PROGRAM"},
                 {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
                 {-46, "CL_INVALID_KERNEL_NAME"},
                 {-48, "CL_INVALID_KERNEL"},
                 {-49, "CL_INVALID_ARG_INDEX"},
                 {-50, "CL_INVALID_ARG_VALUE"},
                 {-51, "CL_INVALID_ARG_SIZE"},
                 {-52, "CL_INVALID_KERNEL_ARGS"},
                 {-54, "CL_INVALID_WORK_GROUP_SIZE"},
                 {-55, "CL_INVALID_WORK_ITEM_SIZE"},
                 {-58, "CL_INVALID_EVENT"},
                 {-61, "CL_INVALID_BUFFER_SIZE"},
                 {-63, "CL_INVALID_GLOBAL_WORK_SIZE"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (names[i].code == code) return names[i].name;
    return "an error of OpenCL that has no name here";
}
