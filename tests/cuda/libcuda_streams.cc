/* libcuda_streams.cc - the stand-in for libcuda: streams, events and copies. A stream is a queue that runs when
 * somebody waits for it, on the thread that waits; a query of an event runs one piece of work. */
#include "driver.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#define FUNCTION(name, symbol, parameters) extern "C" STANDIN_EXPORT CUresult cu_##name parameters __asm__(symbol);
LG_CU_FUNCTIONS(FUNCTION)
#undef FUNCTION

namespace {
std::vector<stream *> streams; /* those with work, or without: all that are alive */
int held_queries;

double now() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void complete(const work &w) {
    if (w.is == RECORD && w.of->complete < w.number) w.of->complete = w.number, w.of->milliseconds = now();
}

/* Copies; a range that has ended in the meantime is a violation. */
int copy(const work &w) {
    const std::string problem = guarded([&] { memmove(w.to, w.from, w.bytes); });
    count("copies");
    if (problem.empty()) return 0;
    violation("a copy of %zu bytes fails: %s", w.bytes, problem.c_str());
    return ILLEGAL_ADDRESS;
}
} // namespace

bool run_one(stream *s) {
    if (s->queue.empty()) return false;
    if (s->queue.front().is == WAIT) {
        const work &w = s->queue.front();
        if (w.of->complete < w.number && w.on->alive && run_one(w.on)) return true;
        s->queue.pop_front();
        return true;
    }
    const work w = s->queue.front();
    s->queue.pop_front();
    int code = 0;
    if (w.is == COPY && broken == 0) code = copy(w);
    if (w.is == CALLS && broken == 0)
        for (const call &one : *w.calls)
            if (code == 0) code = run_call(one);
    if (code != 0) broken = code;
    complete(w);
    return true;
}

void abandon(stream *s) {
    for (const work &w : s->queue) complete(w);
    s->queue.clear();
}

void abandon_all() {
    for (stream *s : streams) abandon(s);
}

void each_queued(const std::function<void(const work &, const call *)> &of) {
    for (const stream *s : streams)
        for (const work &w : s->queue) {
            if (w.is == COPY) of(w, nullptr);
            if (w.is == CALLS)
                for (const call &one : *w.calls) of(w, &one);
        }
}

/* The next `queries` queries of events make no progress, and say that the events are not complete. */
extern "C" STANDIN_EXPORT void standin_hold(int queries) { held_queries = queries; }

/* ---- streams ----------------------------------------------------------------------------------------------------- */

CUresult cu_StreamCreate(CUstream *out, unsigned flags) {
    ENTER("cuStreamCreate");
    if (flags > CU_STREAM_NON_BLOCKING) return INVALID_VALUE;
    stream *made = new stream;
    made->is = STREAM, made->device = here.device;
    streams.push_back(made);
    *out = (CUstream)keep(made);
    return 0;
}

CUresult cu_StreamDestroy(CUstream handle) {
    entry here("cuStreamDestroy", true);
    if (here.injected) forgive(handle);
    if (here.code != 0) return here.code;
    stream *s = find_as<stream>(handle, STREAM, here.device);
    if (s == nullptr) return INVALID_HANDLE;
    if (!s->queue.empty()) violation("the stream has %zu pieces of work that nobody has waited for", s->queue.size());
    abandon(s);
    s->alive = false;
    streams.erase(std::find(streams.begin(), streams.end(), s));
    return 0;
}

CUresult cu_StreamSynchronize(CUstream handle) {
    entry here("cuStreamSynchronize", true);
    stream *s = here.code != 0 && !here.injected ? nullptr : find_as<stream>(handle, STREAM, here.device);
    if (here.injected && s != nullptr) abandon(s);
    if (here.code != 0) return here.code;
    if (s == nullptr) return INVALID_HANDLE;
    while (run_one(s)) {
    }
    return broken;
}

CUresult cu_StreamWaitEvent(CUstream handle, CUevent of, unsigned flags) {
    ENTER("cuStreamWaitEvent");
    stream *s = find_as<stream>(handle, STREAM, here.device);
    event *e = find_as<event>(of, EVENT, -1);
    if (s == nullptr || e == nullptr) return INVALID_HANDLE;
    if (flags != 0) return INVALID_VALUE;
    if (e->recorded > e->complete) s->queue.push_back({WAIT, nullptr, nullptr, nullptr, 0, e, e->recorded, e->on});
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

CUresult cu_EventCreate(CUevent *out, unsigned flags) {
    ENTER("cuEventCreate");
    event *made = new event;
    made->is = EVENT, made->device = here.device, made->flags = flags;
    *out = (CUevent)keep(made);
    return 0;
}

CUresult cu_EventDestroy(CUevent handle) {
    entry here("cuEventDestroy", true);
    if (here.injected) forgive(handle);
    if (here.code != 0) return here.code;
    event *e = find_as<event>(handle, EVENT, -1);
    if (e == nullptr) return INVALID_HANDLE;
    for (const stream *s : streams)
        for (const work &w : s->queue)
            if (w.of == e && (w.is == RECORD || w.is == WAIT)) {
                violation("queued work %s the event", w.is == RECORD ? "records" : "waits for");
                e->alive = false;
                return 0;
            }
    e->alive = false;
    return 0;
}

CUresult cu_EventRecord(CUevent handle, CUstream on) {
    ENTER("cuEventRecord");
    event *e = find_as<event>(handle, EVENT, here.device);
    stream *s = find_as<stream>(on, STREAM, here.device);
    if (e == nullptr || s == nullptr) return INVALID_HANDLE;
    e->on = s;
    s->queue.push_back({RECORD, nullptr, nullptr, nullptr, 0, e, ++e->recorded, s});
    return 0;
}

CUresult cu_EventQuery(CUevent handle) {
    entry here("cuEventQuery", true);
    event *e = here.code != 0 && !here.injected ? nullptr : find_as<event>(handle, EVENT, here.device);
    if (here.injected && e != nullptr && e->on != nullptr) abandon(e->on);
    if (here.code != 0) return here.code;
    if (e == nullptr) return INVALID_HANDLE;
    if (held_queries > 0) {
        held_queries--;
        return CUDA_ERROR_NOT_READY;
    }
    if (e->complete < e->recorded) run_one(e->on);
    return e->complete < e->recorded ? CUDA_ERROR_NOT_READY : broken;
}

CUresult cu_EventSynchronize(CUevent handle) {
    entry here("cuEventSynchronize", true);
    event *e = here.code != 0 && !here.injected ? nullptr : find_as<event>(handle, EVENT, here.device);
    if (here.injected && e != nullptr && e->on != nullptr) abandon(e->on);
    if (here.code != 0) return here.code;
    if (e == nullptr) return INVALID_HANDLE;
    while (e->complete < e->recorded && run_one(e->on)) {
    }
    return broken;
}

CUresult cu_EventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    ENTER("cuEventElapsedTime");
    const event *a = find_as<event>(from, EVENT, here.device), *b = find_as<event>(to, EVENT, here.device);
    if (a == nullptr || b == nullptr) return INVALID_HANDLE;
    if (((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) != 0 || a->recorded == 0 || b->recorded == 0) {
        violation("an event without a time");
        return INVALID_HANDLE;
    }
    if (a->complete < a->recorded || b->complete < b->recorded) return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(b->milliseconds - a->milliseconds);
    return 0;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

enum { OF_HOST, OF_DEVICE };

static bool check_range(const void *at, size_t bytes, int where) {
    const allocation *a = allocation_of(at, bytes, true), *begins = allocation_of(at, 1, true);
    if (where == OF_HOST) {
        if (a != nullptr && a->pinned && a->alive) return true;
        if (begins == nullptr) return at != nullptr; /* any memory of the process */
        if (!begins->pinned)
            violation("%p is memory of the device, not of the host", at);
        else if (!begins->alive)
            violation("the pinned memory %p has been freed", at);
        else
            violation("%zu bytes at +%zu of pinned memory of %zu bytes", bytes, (size_t)((const char *)at - begins->at),
                      begins->bytes);
        return false;
    }
    if (a != nullptr && !a->pinned && a->alive) return true;
    if (begins == nullptr || begins->pinned)
        violation("%p is not memory of the device", at);
    else if (!begins->alive)
        violation("the memory %p has been freed", at);
    else
        violation("%zu bytes at +%zu of memory of %zu bytes", bytes, (size_t)((const char *)at - begins->at),
                  begins->bytes);
    return false;
}

static CUresult submit_copy(const entry &here, void *to, int to_where, const void *from, int from_where, size_t bytes,
                            CUstream handle) {
    stream *s = find_as<stream>(handle, STREAM, here.device);
    if (s == nullptr) return INVALID_HANDLE;
    if (bytes == 0) return 0;
    if (!check_range(to, bytes, to_where) || !check_range(from, bytes, from_where)) return INVALID_VALUE;
    s->queue.push_back({COPY, nullptr, (char *)to, (const char *)from, bytes, nullptr, 0, nullptr});
    return 0;
}

CUresult cu_MemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream on) {
    ENTER("cuMemcpyHtoDAsync");
    return submit_copy(here, (void *)(uintptr_t)to, OF_DEVICE, from, OF_HOST, bytes, on);
}

CUresult cu_MemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream on) {
    ENTER("cuMemcpyDtoHAsync");
    return submit_copy(here, to, OF_HOST, (void *)(uintptr_t)from, OF_DEVICE, bytes, on);
}

CUresult cu_MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream on) {
    ENTER("cuMemcpyDtoDAsync");
    return submit_copy(here, (void *)(uintptr_t)to, OF_DEVICE, (void *)(uintptr_t)from, OF_DEVICE, bytes, on);
}
