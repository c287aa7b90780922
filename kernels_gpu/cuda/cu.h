/* cu.h - the part of CUDA's driver API and of NVRTC that the backend calls: types, constants, and tables of the
 * functions of libcuda and libnvrtc. The libraries are opened at run time, so a build needs no headers of CUDA, and a
 * machine without a GPU can load the backend. */
#ifndef LG_CU_H
#define LG_CU_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct nvrtcProgram_st *nvrtcProgram;
typedef struct CUtensorMap { /* opaque; cuTensorMapEncodeTiled fills it */
    _Alignas(64) uint64_t opaque[16];
} CUtensorMap;
typedef struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction func;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameters, **extra;
    void *kernel, *context; /* NULL */
} CUDA_KERNEL_NODE_PARAMS;

/* Names and numbers are those of cuda.h and nvrtc.h. */
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_NOT_READY = 600,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,       /* kHz */
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37, /* bits */
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
    NVRTC_SUCCESS = 0
};

/* Each line has the field of lg_cu, the symbol of libcuda and the parameters. All functions return CUresult. */
#define LG_CU_FUNCTIONS(F)                                                                                             \
    F(Init, "cuInit", (unsigned))                                                                                      \
    F(DriverGetVersion, "cuDriverGetVersion", (int *))                                                                 \
    F(GetErrorName, "cuGetErrorName", (CUresult, const char **))                                                       \
    F(GetErrorString, "cuGetErrorString", (CUresult, const char **))                                                   \
    F(DeviceGetCount, "cuDeviceGetCount", (int *))                                                                     \
    F(DeviceGet, "cuDeviceGet", (CUdevice *, int))                                                                     \
    F(DeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                                                       \
    F(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))                                                     \
    F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice))                                              \
    F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                     \
    F(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                                              \
    F(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *))                                                              \
    F(MemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                                             \
    F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                              \
    F(MemFree, "cuMemFree_v2", (CUdeviceptr))                                                                          \
    F(MemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                                     \
    F(MemFreeHost, "cuMemFreeHost", (void *))                                                                          \
    F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                          \
    F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                                \
    F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                           \
    F(StreamCreate, "cuStreamCreate", (CUstream *, unsigned))                                                          \
    F(StreamDestroy, "cuStreamDestroy_v2", (CUstream))                                                                 \
    F(StreamSynchronize, "cuStreamSynchronize", (CUstream))                                                            \
    F(StreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                             \
    F(EventCreate, "cuEventCreate", (CUevent *, unsigned))                                                             \
    F(EventDestroy, "cuEventDestroy_v2", (CUevent))                                                                    \
    F(EventRecord, "cuEventRecord", (CUevent, CUstream))                                                               \
    F(EventQuery, "cuEventQuery", (CUevent))                                                                           \
    F(EventSynchronize, "cuEventSynchronize", (CUevent))                                                               \
    F(EventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent))                                             \
    F(ModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *))                                                  \
    F(ModuleUnload, "cuModuleUnload", (CUmodule))                                                                      \
    F(ModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))                                \
    F(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction, int, int))                                                  \
    F(LaunchKernel, "cuLaunchKernel",                                                                                  \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))  \
    F(GraphCreate, "cuGraphCreate", (CUgraph *, unsigned))                                                             \
    F(GraphDestroy, "cuGraphDestroy", (CUgraph))                                                                       \
    F(GraphAddKernelNode, "cuGraphAddKernelNode_v2",                                                                   \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *))                          \
    F(GraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long))                   \
    F(GraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))                                                           \
    F(GraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))

typedef struct lg_cu {
#define LG_CU_FIELD(name, symbol, parameters) CUresult(*name) parameters;
    LG_CU_FUNCTIONS(LG_CU_FIELD)
#undef LG_CU_FIELD
    /* NULL if the driver is older than CUDA 12. */
    CUresult (*TensorMapEncodeTiled)(CUtensorMap *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                                     const uint32_t *, const uint32_t *, int, int, int, int);
} lg_cu;

/* The same for libnvrtc. All functions return an nvrtcResult, which is an int. */
#define LG_NVRTC_FUNCTIONS(F)                                                                                          \
    F(Version, "nvrtcVersion", (int *, int *))                                                                         \
    F(CreateProgram, "nvrtcCreateProgram",                                                                             \
      (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *))                     \
    F(CompileProgram, "nvrtcCompileProgram", (nvrtcProgram, int, const char *const *))                                 \
    F(DestroyProgram, "nvrtcDestroyProgram", (nvrtcProgram *))                                                         \
    F(GetCUBINSize, "nvrtcGetCUBINSize", (nvrtcProgram, size_t *))                                                     \
    F(GetCUBIN, "nvrtcGetCUBIN", (nvrtcProgram, char *))                                                               \
    F(GetProgramLogSize, "nvrtcGetProgramLogSize", (nvrtcProgram, size_t *))                                           \
    F(GetProgramLog, "nvrtcGetProgramLog", (nvrtcProgram, char *))

typedef struct lg_nvrtc {
#define LG_NVRTC_FIELD(name, symbol, parameters) int(*name) parameters;
    LG_NVRTC_FUNCTIONS(LG_NVRTC_FIELD)
#undef LG_NVRTC_FIELD
    int major, minor; /* version of the compiler */
} lg_nvrtc;

/* Returns the functions of the driver, which is opened once per process. If there is no driver, returns NULL and stores
 * the reason in *missing. */
const lg_cu *lg_cu_open(const char **missing);
/* Does the same for the compiler. */
const lg_nvrtc *lg_nvrtc_open(const char **missing);

#endif
