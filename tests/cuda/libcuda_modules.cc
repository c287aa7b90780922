/* libcuda_modules.cc - the stand-in for libcuda: modules, launches of kernels and graphs. The image of a module is what
 * the stand-in for NVRTC has made: a shared library with a header. */
#include "driver.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUNCTION(name, symbol, parameters) extern "C" STANDIN_EXPORT CUresult cu_##name parameters __asm__(symbol);
LG_CU_FUNCTIONS(FUNCTION)
#undef FUNCTION

enum { PAGE = 4096, STACK = 128 * 1024, USUAL_SHARED = 48 * 1024, MOST_THREADS = 1024, GRID = 65535 };

namespace {
size_t most_shared() { return (size_t)setting("LINNET_STANDIN_SHARED", 100 * 1024); }

/* Stacks for the threads of a block, each above a guard page. */
char *stacks() {
    static char *made;
    if (made != nullptr) return made;
    made = (char *)mmap(nullptr, (size_t)MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < MOST_THREADS; ++i) mprotect(made + (size_t)i * STACK, PAGE, PROT_NONE);
    return made;
}

/* Dynamic shared memory, which ends close to a guard page. */
char *shared_memory(size_t bytes) {
    enum { MOST = 256 * 1024 };
    static char *made;
    if (made == nullptr) {
        made = (char *)mmap(nullptr, MOST + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(made + MOST, PAGE, PROT_NONE);
    }
    return made + (MOST - bytes) / 1024 * 1024;
}

/* A file with the bytes; -1: the image has less than its header says, or its hash is another. The loader of libraries
 * takes two files with one path for one library, so each has another. */
int file_of(const void *image, lg_cpu_header *header, char *path, size_t size) {
    static int number;
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const ssize_t n = write(ends[1], image, sizeof *header); /* fails, without a fault, where there is no memory */
    const bool whole = n == (ssize_t)sizeof *header && read(ends[0], header, sizeof *header) == n;
    close(ends[0]);
    close(ends[1]);
    if (!whole || memcmp(header->magic, LG_CPU_MAGIC, sizeof header->magic) != 0) return -1;
    snprintf(path, size, "/tmp/linnet-standin-%d-%d.so", (int)getpid(), number++);
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    const char *bytes = (const char *)image + sizeof *header;
    if (file < 0 || write(file, bytes, header->size) != (ssize_t)header->size ||
        standin_hash(bytes, header->size, 1) != header->hash) {
        if (file >= 0) close(file);
        unlink(path);
        return -1;
    }
    return file;
}
} // namespace

/* ---- modules ----------------------------------------------------------------------------------------------------- */

CUresult cu_ModuleLoadData(CUmodule *out, const void *image) {
    ENTER("cuModuleLoadData");
    lg_cpu_header header;
    char path[60];
    const int file = image != nullptr ? file_of(image, &header, path, sizeof path) : -1;
    if (file < 0) return INVALID_IMAGE;
    const unsigned own = (unsigned)setting("LINNET_STANDIN_COMPUTE", 87);
    const bool fits = header.compute / 10 == own / 10 && header.compute <= own;
    close(file);
    void *library = fits ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path);
    if (!fits) return NO_BINARY;
    lg_cpu_image (*image_of)() = library != nullptr ? (lg_cpu_image (*)())dlsym(library, "lg_cpu_image_of") : nullptr;
    if (image_of == nullptr) {
        fprintf(stderr, "stand-in: %s\n", dlerror());
        return INVALID_IMAGE;
    }
    module_object *made = new module_object;
    made->is = MODULE, made->device = here.device;
    made->library = library;
    made->image = image_of();
    *out = (CUmodule)keep(made);
    count("modules");
    return 0;
}

CUresult cu_ModuleUnload(CUmodule handle) {
    entry here("cuModuleUnload", true);
    if (here.injected) forgive(handle);
    if (here.code != 0) return here.code;
    module_object *m = find_as<module_object>(handle, MODULE, here.device);
    bool queued = false;
    if (m == nullptr) return INVALID_HANDLE;
    each_queued([&](const work &, const call *c) { queued |= c != nullptr && c->of->of == m; });
    if (queued) violation("queued work uses a kernel of the module");
    m->alive = false;
    for (const auto &one : m->functions) one.second->alive = false;
    if (!queued) dlclose(m->library);
    return 0;
}

CUresult cu_ModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    ENTER("cuModuleGetFunction");
    module_object *m = find_as<module_object>(handle, MODULE, here.device);
    if (m == nullptr) return INVALID_HANDLE;
    const lg_cpu_kernel *kernel = m->image.kernels;
    while (kernel->name != nullptr && strcmp(kernel->name, name) != 0) ++kernel;
    if (kernel->name == nullptr) return NOT_FOUND;
    function *&found = m->functions[name];
    if (found == nullptr) {
        found = new function;
        found->is = FUNCTION, found->device = here.device;
        found->of = m, found->kernel = kernel;
        keep(found);
    }
    *out = (CUfunction)found;
    return 0;
}

CUresult cu_FuncSetAttribute(CUfunction handle, int attribute, int value) {
    ENTER("cuFuncSetAttribute");
    function *f = find_as<function>(handle, FUNCTION, here.device);
    if (f == nullptr) return INVALID_HANDLE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        violation("attribute %d is not emulated", attribute);
        return INVALID_VALUE;
    }
    if (value < 0 || (size_t)value + f->of->image.shared_bytes > most_shared()) {
        violation("%d bytes of dynamic and %zu of static shared memory; a block has %zu", value,
                  f->of->image.shared_bytes, most_shared());
        return INVALID_VALUE;
    }
    f->most_shared = value;
    return 0;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* Checks the sizes and copies the parameters. */
static int make_call(call *out, CUfunction handle, int device, const unsigned *grid, const unsigned *block,
                     size_t shared, void **parameters, void **extra) {
    function *f = find_as<function>(handle, FUNCTION, device);
    if (f == nullptr) return INVALID_HANDLE;
    const char *name = f->kernel->name;
    const unsigned long long threads = (unsigned long long)block[0] * block[1] * block[2];
    if (threads == 0 || threads > MOST_THREADS || block[2] > 64) {
        violation("%s has a block of %u x %u x %u threads", name, block[0], block[1], block[2]);
        return INVALID_VALUE;
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffffu || grid[1] > GRID || grid[2] > GRID) {
        violation("%s has a grid of %u x %u x %u blocks", name, grid[0], grid[1], grid[2]);
        return INVALID_VALUE;
    }
    if (shared > (size_t)f->most_shared || shared + f->of->image.shared_bytes > most_shared() ||
        f->of->image.shared_bytes > USUAL_SHARED) {
        violation("%s needs %zu bytes of dynamic shared memory, and is allowed %d; %zu bytes are static", name, shared,
                  f->most_shared, f->of->image.shared_bytes);
        return INVALID_VALUE;
    }
    if (extra != nullptr || (parameters == nullptr && f->kernel->n_parameters > 0)) {
        violation("%s has no parameters", name);
        return INVALID_VALUE;
    }
    out->of = f;
    std::copy(grid, grid + 3, out->grid);
    std::copy(block, block + 3, out->block);
    out->shared = shared;
    for (int i = 0; i < f->kernel->n_parameters; ++i) {
        const char *from = (const char *)parameters[i];
        if (from == nullptr) {
            violation("parameter %d of %s is missing", i, name);
            return INVALID_VALUE;
        }
        out->parameters.emplace_back(from, from + f->kernel->sizes[i]);
    }
    return 0;
}

int run_call(const call &what) {
    char error[lg_cpu_error_bytes] = "";
    std::vector<void *> parameters;
    std::vector<std::vector<char>> copies; /* each aligned as a tensor map has to be */
    const lg_cpu_kernel *kernel = what.of->kernel;
    if (!what.of->alive) {
        violation("the module of %s has been unloaded", kernel->name);
        return LAUNCH_FAILED;
    }
    for (const std::vector<char> &parameter : what.parameters) {
        copies.emplace_back(parameter.size() + 64);
        char *at = copies.back().data();
        at += (64 - (uintptr_t)at % 64) % 64;
        memcpy(at, parameter.data(), parameter.size());
        parameters.push_back(at);
    }
    lg_cpu_launch launch = {};
    std::copy(what.grid, what.grid + 3, launch.grid);
    std::copy(what.block, what.block + 3, launch.block);
    launch.shared = shared_memory(what.shared);
    launch.shared_bytes = what.shared;
    launch.stacks = stacks();
    launch.stack_bytes = STACK;
    launch.order = (unsigned)setting("LINNET_STANDIN_ORDER", 0);
    launch.error = error;
    int failed = 0;
    const std::string fault = guarded([&] { failed = kernel->run(&launch, parameters.data()); });
    count("kernels");
    if (fault.empty() && failed == 0) return 0;
    violation("%s fails: %s", kernel->name, fault.empty() ? error : fault.c_str());
    return fault.empty() ? LAUNCH_FAILED : ILLEGAL_ADDRESS;
}

CUresult cu_LaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared, CUstream on, void **parameters,
                         void **extra) {
    ENTER("cuLaunchKernel");
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    stream *s = find_as<stream>(on, STREAM, here.device);
    if (s == nullptr) return INVALID_HANDLE;
    if (broken != 0) return broken;
    auto calls = std::make_shared<calls_of>(1);
    const int code = make_call(&calls->front(), handle, here.device, grid, block, shared, parameters, extra);
    if (code == 0) s->queue.push_back({CALLS, calls, nullptr, nullptr, 0, nullptr, 0, nullptr});
    return code;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

CUresult cu_GraphCreate(CUgraph *out, unsigned flags) {
    ENTER("cuGraphCreate");
    if (flags != 0) return INVALID_VALUE;
    graph *made = new graph;
    made->is = GRAPH, made->device = here.device;
    *out = (CUgraph)keep(made);
    return 0;
}

CUresult cu_GraphDestroy(CUgraph handle) {
    entry here("cuGraphDestroy", true);
    if (here.injected) forgive(handle);
    if (here.code != 0) return here.code;
    graph *g = find_as<graph>(handle, GRAPH, -1);
    if (g == nullptr) return INVALID_HANDLE;
    g->alive = false;
    for (node *n : g->nodes) n->alive = false;
    return 0;
}

CUresult cu_GraphAddKernelNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *after, size_t n_after,
                               const CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER("cuGraphAddKernelNode");
    graph *g = find_as<graph>(handle, GRAPH, here.device);
    if (g == nullptr) return INVALID_HANDLE;
    const unsigned grid[3] = {p->grid_x, p->grid_y, p->grid_z}, block[3] = {p->block_x, p->block_y, p->block_z};
    std::unique_ptr<node> made(new node);
    made->is = NODE, made->device = here.device;
    for (size_t i = 0; i < n_after; ++i) {
        node *before = find_as<node>(after[i], NODE, here.device);
        if (before == nullptr || std::find(g->nodes.begin(), g->nodes.end(), before) == g->nodes.end()) {
            violation("a dependency is no node of the graph");
            return INVALID_VALUE;
        }
        made->after.push_back(before);
    }
    if (p->kernel != nullptr || p->context != nullptr) violation("kern or ctx of the parameters is not NULL");
    const int code =
        make_call(&made->what, p->func, here.device, grid, block, p->shared_bytes, p->parameters, p->extra);
    if (code != 0) return code;
    g->nodes.push_back(made.get());
    *out = (CUgraphNode)keep(made.release());
    return 0;
}

/* Nodes that do not depend on each other run in the reverse order if LINNET_STANDIN_ORDER is set. */
CUresult cu_GraphInstantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    ENTER("cuGraphInstantiate");
    graph *g = find_as<graph>(handle, GRAPH, here.device);
    if (g == nullptr) return INVALID_HANDLE;
    if (flags != 0) return INVALID_VALUE;
    std::vector<node *> left = g->nodes, done;
    executable *made = new executable;
    made->is = EXECUTABLE, made->device = here.device;
    made->calls = std::make_shared<calls_of>();
    if (setting("LINNET_STANDIN_ORDER", 0) != 0) std::reverse(left.begin(), left.end());
    while (!left.empty()) {
        const auto next = std::find_if(left.begin(), left.end(), [&](const node *n) {
            return std::all_of(n->after.begin(), n->after.end(),
                               [&](node *before) { return std::find(done.begin(), done.end(), before) != done.end(); });
        });
        made->calls->push_back((*next)->what);
        done.push_back(*next);
        left.erase(next);
    }
    *out = (CUgraphExec)keep(made);
    return 0;
}

CUresult cu_GraphLaunch(CUgraphExec handle, CUstream on) {
    ENTER("cuGraphLaunch");
    const executable *e = find_as<executable>(handle, EXECUTABLE, here.device);
    stream *s = find_as<stream>(on, STREAM, here.device);
    if (e == nullptr || s == nullptr) return INVALID_HANDLE;
    if (broken != 0) return broken;
    count("graphs");
    s->queue.push_back({CALLS, e->calls, nullptr, nullptr, 0, nullptr, 0, nullptr});
    return 0;
}

CUresult cu_GraphExecDestroy(CUgraphExec handle) {
    entry here("cuGraphExecDestroy", true);
    if (here.injected) forgive(handle);
    if (here.code != 0) return here.code;
    executable *e = find_as<executable>(handle, EXECUTABLE, here.device);
    if (e == nullptr) return INVALID_HANDLE;
    e->alive = false; /* queued launches go on */
    return 0;
}

/* Tensor maps are not emulated. */
extern "C" STANDIN_EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *, int, uint32_t, void *, const uint64_t *,
                                                          const uint64_t *, const uint32_t *, const uint32_t *, int,
                                                          int, int, int) {
    return NOT_SUPPORTED;
}
