/* environment.c - the environment variables that the libraries of devices read. No other file reads environment
 * variables. */
#include "kernels_gpu/common/environment.h"

#include <stdlib.h>

static const char *const names[] = {[LG_LIBRARY_OPENCL] = "LINNET_OPENCL",
                                    [LG_LIBRARY_CUDA] = "LINNET_CUDA",
                                    [LG_LIBRARY_NVRTC] = "LINNET_NVRTC",
                                    [LG_CACHE_HOME] = "XDG_CACHE_HOME",
                                    [LG_HOME] = "HOME"};

const char *lg_variable_name(lg_variable variable) { return names[variable]; }

const char *lg_variable_value(lg_variable variable) {
    const char *value = getenv(names[variable]);
    return value != NULL && value[0] != 0 ? value : NULL;
}
