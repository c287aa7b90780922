/* environment.h - the environment variables that the libraries of devices read. linnet itself
 * reads no environment variables. Options of a device cannot replace these variables: a process opens a driver once,
 * before it knows a device, and only the environment says where the user's folders are. docs/gpu.md describes them. */
#ifndef LG_ENVIRONMENT_H
#define LG_ENVIRONMENT_H

typedef enum lg_variable {
    LG_LIBRARY_OPENCL, /* LINNET_OPENCL: the library to open instead of libOpenCL */
    LG_LIBRARY_CUDA,   /* LINNET_CUDA: the library to open instead of libcuda */
    LG_LIBRARY_NVRTC,  /* LINNET_NVRTC: the library to open instead of libnvrtc */
    LG_CACHE_HOME,     /* XDG_CACHE_HOME: the folder of the user's caches */
    LG_HOME            /* HOME: the user's folder */
} lg_variable;

/* Returns the name, such as "LINNET_CUDA". */
const char *lg_variable_name(lg_variable variable);
/* Returns the value; NULL if the variable is not set or is empty. */
const char *lg_variable_value(lg_variable variable);

#endif
