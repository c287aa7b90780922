/* cl.h - the part of OpenCL 1.2 that the backend calls: types, constants, and a table of the functions of libOpenCL,
 * which is opened at run time, so a build needs no headers of OpenCL, and a machine without OpenCL can load the
 * backend. */
#ifndef LG_CL_H
#define LG_CL_H

#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong, cl_bitfield;
typedef struct cl_region {
    size_t origin, size;
} cl_region;

/* Names and numbers are those of the Khronos specification. */
enum {
    CL_SUCCESS = 0,
    CL_TRUE = 1,
    CL_FALSE = 0,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, /* bits */
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_AVAILABLE = 0x1027,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
    CL_DEVICE_TYPE_CPU = 1 << 1,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_QUEUE_PROFILING_ENABLE = 1 << 1,
    CL_MEM_READ_WRITE = 1 << 0,
    CL_MEM_READ_ONLY = 1 << 2,
    CL_MEM_USE_HOST_PTR = 1 << 3,
    CL_MEM_ALLOC_HOST_PTR = 1 << 4,
    CL_MAP_READ = 1 << 0,
    CL_MAP_WRITE = 1 << 1,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_COMPLETE = 0, /* as the status of an event */
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283
};
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

/* Each line has the return type, the name without "cl", and the parameters. */
#define LG_CL_FUNCTIONS(F)                                                                                             \
    F(cl_int, GetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                                                  \
    F(cl_int, GetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))                         \
    F(cl_int, GetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                                        \
    F(cl_context, CreateContext,                                                                                       \
      (const intptr_t *, cl_uint, const cl_device_id *, void (*)(const char *, const void *, size_t, void *), void *,  \
       cl_int *))                                                                                                      \
    F(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *))                         \
    F(cl_int, ReleaseCommandQueue, (cl_command_queue))                                                                 \
    F(cl_mem, CreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                                       \
    F(cl_mem, CreateSubBuffer, (cl_mem, cl_bitfield, cl_uint, const void *, cl_int *))                                 \
    F(cl_int, ReleaseMemObject, (cl_mem))                                                                              \
    F(cl_int, EnqueueReadBuffer,                                                                                       \
      (cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))              \
    F(cl_int, EnqueueWriteBuffer,                                                                                      \
      (cl_command_queue, cl_mem, cl_uint, size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *))        \
    F(cl_int, EnqueueCopyBuffer,                                                                                       \
      (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event *, cl_event *))               \
    F(void *, EnqueueMapBuffer,                                                                                        \
      (cl_command_queue, cl_mem, cl_uint, cl_bitfield, size_t, size_t, cl_uint, const cl_event *, cl_event *,          \
       cl_int *))                                                                                                      \
    F(cl_int, EnqueueUnmapMemObject, (cl_command_queue, cl_mem, void *, cl_uint, const cl_event *, cl_event *))        \
    F(cl_int, EnqueueNDRangeKernel,                                                                                    \
      (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,                  \
       const cl_event *, cl_event *))                                                                                  \
    F(cl_int, EnqueueMarkerWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *))                    \
    F(cl_int, EnqueueBarrierWithWaitList, (cl_command_queue, cl_uint, const cl_event *, cl_event *))                   \
    F(cl_int, Flush, (cl_command_queue))                                                                               \
    F(cl_int, Finish, (cl_command_queue))                                                                              \
    F(cl_int, WaitForEvents, (cl_uint, const cl_event *))                                                              \
    F(cl_int, SetEventCallback, (cl_event, cl_int, void (*)(cl_event, cl_int, void *), void *))                        \
    F(cl_int, ReleaseEvent, (cl_event))                                                                                \
    F(cl_int, GetEventProfilingInfo, (cl_event, cl_uint, size_t, void *, size_t *))                                    \
    F(cl_program, CreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *))             \
    F(cl_program, CreateProgramWithBinary,                                                                             \
      (cl_context, cl_uint, const cl_device_id *, const size_t *, const unsigned char **, cl_int *, cl_int *))         \
    F(cl_int, BuildProgram,                                                                                            \
      (cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *), void *))                 \
    F(cl_int, GetProgramInfo, (cl_program, cl_uint, size_t, void *, size_t *))                                         \
    F(cl_int, GetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))                      \
    F(cl_int, ReleaseProgram, (cl_program))                                                                            \
    F(cl_kernel, CreateKernel, (cl_program, const char *, cl_int *))                                                   \
    F(cl_int, SetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                                                \
    F(cl_int, ReleaseKernel, (cl_kernel))

typedef struct lg_cl {
#define LG_CL_FIELD(result, name, parameters) result(*name) parameters;
    LG_CL_FUNCTIONS(LG_CL_FIELD)
#undef LG_CL_FIELD
} lg_cl;

/* Returns the functions of libOpenCL, which is opened once per process. If there is no OpenCL, returns NULL and stores
 * the reason in *missing. */
const lg_cl *lg_cl_open(const char **missing);
/* Returns the name of an error number, such as "CL_OUT_OF_RESOURCES". */
const char *lg_cl_error(int code);

#endif
