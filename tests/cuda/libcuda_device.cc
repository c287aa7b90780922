/* libcuda_device.cc - the stand-in for libcuda: devices, contexts and memory. Each allocation is a mapping between
 * guard pages, and its address is one of the host, so kernels of the CPU use it. */
#include "driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#define FUNCTION(name, symbol, parameters) extern "C" STANDIN_EXPORT CUresult cu_##name parameters __asm__(symbol);
LG_CU_FUNCTIONS(FUNCTION)
#undef FUNCTION

enum { PAGE = 4096, FILL = 16 << 20, TAIL = 0xA5, QUARANTINE = 2000 };

thread_local std::vector<int> contexts;

namespace {
std::vector<object *> primary; /* contexts by device */
std::map<uintptr_t, allocation *> by_address;
std::deque<allocation *> quarantine; /* freed, not yet unmapped */
size_t in_use;

size_t total_memory() { return (size_t)setting("LINNET_STANDIN_MEGABYTES", 8192) << 20; }

int make(void **out, size_t bytes, bool pinned, int device) {
    if (bytes == 0 || out == nullptr) return INVALID_VALUE;
    const size_t rounded = (bytes + 255) / 256 * 256, inner = (rounded + PAGE - 1) / PAGE * PAGE;
    if (!pinned && in_use + bytes > total_memory()) return CUDA_ERROR_OUT_OF_MEMORY;
    char *mapping =
        (char *)mmap(nullptr, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    if (mprotect(mapping + PAGE, inner, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, inner + 2 * PAGE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* It ends where the guard page begins, up to its alignment; what is behind its last byte is checked when it is
     * freed. */
    char *at = mapping + PAGE + inner - rounded;
    memset(at, 255, std::min(bytes, (size_t)FILL));
    memset(at + bytes, TAIL, rounded - bytes);
    memset(mapping + PAGE, TAIL, inner - rounded);
    allocation *a = new allocation{at, mapping, bytes, inner + 2 * PAGE, device, pinned};
    allocations.push_back(a);
    by_address[(uintptr_t)at] = a;
    if (!pinned) in_use += bytes;
    *out = at;
    return 0;
}

bool used(const allocation *a, const void *at, size_t bytes) {
    return (const char *)at < a->at + a->bytes && (const char *)at + bytes > a->at;
}

/* Whether queued work has addresses in it. Of a kernel's parameters, each of 8 bytes may be one. */
bool queued(const allocation *a) {
    bool found = false;
    each_queued([&](const work &w, const call *c) {
        if (c == nullptr) {
            found |= used(a, w.to, w.bytes) || used(a, w.from, w.bytes);
            return;
        }
        for (const std::vector<char> &parameter : c->parameters) {
            const char *address = nullptr;
            if (parameter.size() != sizeof address) continue;
            memcpy(&address, parameter.data(), sizeof address);
            found |= used(a, address, 1);
        }
    });
    return found;
}

int end(void *at, bool pinned, int device) {
    const auto found = by_address.find((uintptr_t)at);
    allocation *a = found != by_address.end() ? found->second : nullptr;
    if (a == nullptr || a->pinned != pinned) {
        violation("%p is not the address of %s", at, pinned ? "pinned memory" : "memory of the device");
        return INVALID_VALUE;
    }
    if (!a->alive) {
        violation("%p has been freed before", at);
        return INVALID_VALUE;
    }
    if (!pinned && a->device != device)
        violation("the memory is of device %d, the context of device %d", a->device, device);
    if (queued(a)) violation("queued work uses the memory %p of %zu bytes", at, a->bytes);
    const char *first = a->mapping + PAGE, *last = a->mapping + a->mapped - PAGE;
    for (const char *beside = first; beside < last; ++beside) {
        if (beside == a->at) beside += a->bytes;
        if (beside == last || *beside == (char)TAIL) continue;
        violation("something has written outside the memory %p of %zu bytes, at %+lld", at, a->bytes,
                  (long long)(beside - a->at));
        break;
    }
    a->alive = false;
    if (!pinned) in_use -= a->bytes;
    mmap(a->mapping, a->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    quarantine.push_back(a);
    if (quarantine.size() > QUARANTINE) {
        allocation *oldest = quarantine.front();
        quarantine.pop_front();
        munmap(oldest->mapping, oldest->mapped);
        by_address.erase((uintptr_t)oldest->at);
        allocations.erase(std::find(allocations.begin(), allocations.end(), oldest));
        delete oldest;
    }
    return 0;
}

void forgive_memory(const void *at) {
    const auto found = by_address.find((uintptr_t)at);
    if (found != by_address.end()) found->second->forgiven = true;
}
} // namespace

int device_count() { return setting("LINNET_STANDIN_DEVICES", 1); }

allocation *allocation_of(const void *at, size_t bytes, bool dead) {
    auto next = by_address.upper_bound((uintptr_t)at);
    if (next == by_address.begin()) return nullptr;
    allocation *a = std::prev(next)->second;
    return (a->alive || dead) && (const char *)at + bytes <= a->at + a->bytes ? a : nullptr;
}

const char *describe_address(const void *at, char *text, size_t size) {
    for (const allocation *a : allocations) {
        const long long offset = (const char *)at - a->at;
        if ((const char *)at < a->mapping || (const char *)at >= a->mapping + a->mapped) continue;
        snprintf(text, size, "it uses the address %+lld of %s of %zu bytes%s", offset,
                 a->pinned ? "pinned memory" : "memory", a->bytes, a->alive ? "" : ", which has been freed");
        return text;
    }
    snprintf(text, size, "it uses the address %p, where there is no memory", at);
    return text;
}

/* ---- devices and contexts ---------------------------------------------------------------------------------------- */

CUresult cu_Init(unsigned flags) {
    ENTER_WITHOUT_CONTEXT("cuInit");
    if (flags != 0) return INVALID_VALUE;
    if (device_count() == 0) return CUDA_ERROR_NO_DEVICE;
    initialized = true;
    return 0;
}

CUresult cu_DriverGetVersion(int *version) {
    ENTER_WITHOUT_CONTEXT("cuDriverGetVersion");
    *version = setting("LINNET_STANDIN_VERSION", 13000);
    return 0;
}

CUresult cu_DeviceGetCount(int *count) {
    ENTER_WITHOUT_CONTEXT("cuDeviceGetCount");
    *count = device_count();
    return 0;
}

static int check_device(CUdevice device) {
    if (device >= 0 && device < device_count()) return 0;
    violation("there is no device %d", device);
    return INVALID_DEVICE;
}

CUresult cu_DeviceGet(CUdevice *device, int number) {
    ENTER_WITHOUT_CONTEXT("cuDeviceGet");
    *device = number;
    return check_device(number);
}

CUresult cu_DeviceGetName(char *name, int size, CUdevice device) {
    ENTER_WITHOUT_CONTEXT("cuDeviceGetName");
    if (size > 0) snprintf(name, (size_t)size, "linnet stand-in");
    return check_device(device);
}

CUresult cu_DeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER_WITHOUT_CONTEXT("cuDeviceTotalMem");
    *bytes = total_memory();
    return check_device(device);
}

CUresult cu_DeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER_WITHOUT_CONTEXT("cuDeviceGetAttribute");
    const int compute = setting("LINNET_STANDIN_COMPUTE", 87);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1300000; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = setting("LINNET_STANDIN_UNITS", 16); break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: *value = setting("LINNET_STANDIN_INTEGRATED", 0); break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 3200000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 256; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = compute / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = compute % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = setting("LINNET_STANDIN_SHARED", 100 * 1024);
        break;
    default: violation("attribute %d is not emulated", attribute); return INVALID_VALUE;
    }
    return check_device(device);
}

CUresult cu_DevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    ENTER_WITHOUT_CONTEXT("cuDevicePrimaryCtxRetain");
    if (check_device(device) != 0) return INVALID_DEVICE;
    primary.resize((size_t)device_count());
    if (primary[(size_t)device] == nullptr) {
        primary[(size_t)device] = new object{CONTEXT, device};
        keep(primary[(size_t)device]);
    }
    *out = (CUcontext)primary[(size_t)device];
    return 0;
}

CUresult cu_CtxPushCurrent(CUcontext context) {
    entry here("cuCtxPushCurrent", false);
    if (here.injected) abandon_all(); /* the caller can wait for nothing */
    if (here.code != 0) return here.code;
    const object *found = find(context, CONTEXT, -1);
    if (found == nullptr) return INVALID_CONTEXT;
    contexts.push_back(found->device);
    return 0;
}

CUresult cu_CtxPopCurrent(CUcontext *out) {
    entry here("cuCtxPopCurrent", true);
    if (here.injected && !contexts.empty()) contexts.pop_back(); /* callers cannot do more about it */
    if (here.code != 0) return here.code;
    if (out != nullptr) *out = (CUcontext)primary[(size_t)contexts.back()];
    contexts.pop_back();
    return 0;
}

/* How many contexts are current on the calling thread. */
extern "C" STANDIN_EXPORT int standin_contexts(void) { return (int)contexts.size(); }

CUresult cu_GetErrorName(CUresult code, const char **text) {
    entry here("cuGetErrorName", false, false);
    static thread_local char name[60];
    snprintf(name, sizeof name, "CUDA_ERROR_%d", code);
    *text = name;
    return 0;
}

CUresult cu_GetErrorString(CUresult code, const char **text) {
    entry here("cuGetErrorString", false, false);
    static thread_local char name[60];
    snprintf(name, sizeof name, "the stand-in's error %d", code);
    *text = name;
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

CUresult cu_MemGetInfo(size_t *available, size_t *total) {
    ENTER("cuMemGetInfo");
    *total = total_memory();
    *available = *total - in_use;
    return 0;
}

CUresult cu_MemAlloc(CUdeviceptr *out, size_t bytes) {
    ENTER("cuMemAlloc");
    void *at = nullptr;
    const int code = make(&at, bytes, false, here.device);
    if (code == 0) *out = (CUdeviceptr)(uintptr_t)at;
    return code;
}

CUresult cu_MemFree(CUdeviceptr at) {
    entry here("cuMemFree", true);
    if (here.injected) forgive_memory((void *)(uintptr_t)at);
    if (here.code != 0) return here.code;
    return at == 0 ? 0 : end((void *)(uintptr_t)at, false, here.device);
}

CUresult cu_MemHostAlloc(void **out, size_t bytes, unsigned) {
    ENTER("cuMemHostAlloc");
    return make(out, bytes, true, here.device);
}

CUresult cu_MemFreeHost(void *at) {
    entry here("cuMemFreeHost", true);
    if (here.injected) forgive_memory(at);
    return here.code != 0 ? here.code : end(at, true, here.device);
}
