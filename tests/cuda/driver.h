/* driver.h - the objects of the stand-in for libcuda, and what its files share. Queued work runs only when somebody
 * waits for it, on the thread that waits, so the order is always the same. */
#ifndef STANDIN_DRIVER_H
#define STANDIN_DRIVER_H

#include "standin.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

enum { /* codes that cu.h does not name */
       INVALID_VALUE = 1,
       NOT_INITIALIZED = 3,
       INVALID_DEVICE = 101,
       INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201,
       NO_BINARY = 209,
       INVALID_HANDLE = 400,
       NOT_FOUND = 500,
       ILLEGAL_ADDRESS = 700,
       TOO_MANY_RESOURCES = 701,
       LAUNCH_FAILED = 719,
       NOT_SUPPORTED = 801
};

enum kind { CONTEXT, STREAM, EVENT, MODULE, FUNCTION, GRAPH, NODE, EXECUTABLE };

/* Objects are never deleted: a handle that is used after its end is found. */
struct object {
    kind is;
    int device;
    bool alive = true;
    bool forgiven = false; /* its end failed by injection, so it is no leak */
};

struct allocation { /* of the device or pinned */
    char *at, *mapping;
    size_t bytes, mapped;
    int device;
    bool pinned, alive = true, forgiven = false;
};

struct module_object;
struct function : object {
    module_object *of;
    const lg_cpu_kernel *kernel;
    int most_shared = 48 * 1024; /* dynamic */
};
struct module_object : object {
    void *library;
    lg_cpu_image image;
    std::map<std::string, function *> functions;
};

struct call { /* of a kernel, with copies of its parameters */
    function *of;
    unsigned grid[3], block[3];
    size_t shared;
    std::vector<std::vector<char>> parameters;
};

struct node : object {
    call what;
    std::vector<node *> after;
};
struct graph : object {
    std::vector<node *> nodes;
};
typedef std::vector<call> calls_of; /* in the order in which they run */
struct executable : object {
    std::shared_ptr<calls_of> calls;
};

struct stream;
struct event : object {
    unsigned flags;
    stream *on = nullptr;                 /* of the last record */
    long long recorded = 0, complete = 0; /* numbers of records */
    double milliseconds = 0;
};

enum work_kind { COPY, CALLS, RECORD, WAIT };
struct work {
    work_kind is;
    std::shared_ptr<calls_of> calls;
    char *to;
    const char *from;
    size_t bytes;
    event *of; /* and the number of its record, on the stream `on` */
    long long number;
    stream *on;
};
struct stream : object {
    std::deque<work> queue;
};

/* ---- libcuda_state.cc -------------------------------------------------------------------------------------------- */

/* Locks the stand-in for one call of the API. `code` is not 0 if the call has to fail. */
struct entry {
    explicit entry(const char *name, bool needs_context, bool counts = true);
    ~entry();
    int code = 0;
    bool injected = false;
    int device = 0; /* of the current context */
};
#define ENTER(name)                                                                                                    \
    entry here(name, true);                                                                                            \
    if (here.code != 0) return here.code
#define ENTER_WITHOUT_CONTEXT(name)                                                                                    \
    entry here(name, false);                                                                                           \
    if (here.code != 0) return here.code

__attribute__((format(printf, 1, 2))) void violation(const char *format, ...);
void *keep(object *made); /* the handle of a new object */
/* The object of a handle; NULL, after a violation, if there is none of this kind or it has been destroyed. */
object *find(const void *handle, kind is, int device);
template <class T> T *find_as(const void *handle, kind is, int device) {
    return static_cast<T *>(find(handle, is, device));
}
/* After an injected failure of the call that ends an object: the caller cannot end it. */
void forgive(const void *handle);
void count(const char *what, long long n = 1);
int setting(const char *name, int otherwise);
extern bool initialized;
extern int broken; /* the code that all waits return after a kernel has failed */
extern std::vector<object *> objects;
extern std::vector<allocation *> allocations;

/* Runs the function; a fault of memory or a division by 0 in it ends it. Returns an empty text or what happened. */
std::string guarded(const std::function<void()> &function);

/* ---- libcuda_device.cc ------------------------------------------------------------------------------------------- */

extern thread_local std::vector<int> contexts; /* the devices of the current ones; the last one counts */
int device_count();
/* The allocation that all the bytes are in; NULL: none. With `dead`, also one that has been freed. */
allocation *allocation_of(const void *at, size_t bytes, bool dead = false);
const char *describe_address(const void *at, char *text, size_t size);

/* ---- libcuda_streams.cc ------------------------------------------------------------------------------------------ */

bool run_one(stream *s); /* the next piece of work, or one that it waits for; false: there is none */
void abandon(stream *s); /* the work that is queued */
void abandon_all();
/* Calls `of` with each queued call of a kernel and each queued copy. */
void each_queued(const std::function<void(const work &, const call *)> &of);

/* ---- libcuda_modules.cc ------------------------------------------------------------------------------------------ */

int run_call(const call &what); /* 0, or the code of the failure after a violation */

#endif
