/* libcuda_state.cc - the stand-in for libcuda: which objects are alive, violations, failures by injection, leaks, and
 * faults of kernels. */
#undef _FORTIFY_SOURCE /* it takes a jump from one stack to another for a fault */
#include "driver.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <set>
#include <unordered_map>

namespace {
std::recursive_mutex lock;
std::unordered_map<const void *, object *> by_handle;
std::vector<std::string> violations;
std::map<std::string, long long> counters;
thread_local const char *current = "";
long long calls, fail_call;
int fail_code;
const char *failed = ""; /* the last function that an injection has failed */

const char *name_of(kind is) {
    static const char *const names[] = {"context",  "stream", "event", "module",
                                        "function", "graph",  "node",  "graph exec"};
    return names[is];
}

int copy_text(const std::string &from, char *text, int size) {
    if (text != nullptr && size > 0) snprintf(text, (size_t)size, "%s", from.c_str());
    return 0;
}
} // namespace

bool initialized;
int broken;
std::vector<object *> objects;
std::vector<allocation *> allocations;

entry::entry(const char *name, bool needs_context, bool counts) {
    lock.lock();
    current = name;
    if (counts && ++calls == fail_call) {
        code = fail_code, injected = true;
        failed = name;
    } else if (!initialized && strcmp(name, "cuInit") != 0 && counts && strcmp(name, "cuDriverGetVersion") != 0) {
        violation("cuInit has not been called");
        code = NOT_INITIALIZED;
    } else if (needs_context && contexts.empty()) {
        violation("no context is current on this thread");
        code = INVALID_CONTEXT;
    }
    device = contexts.empty() ? -1 : contexts.back();
}

entry::~entry() { lock.unlock(); }

void violation(const char *format, ...) {
    char text[800];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    violations.push_back(std::string(current) + ": " + text);
    fprintf(stderr, "stand-in: %s\n", violations.back().c_str());
}

void *keep(object *made) {
    by_handle[made] = made;
    objects.push_back(made);
    return made;
}

object *find(const void *handle, kind is, int device) {
    const auto found = by_handle.find(handle);
    if (handle == nullptr || found == by_handle.end()) {
        violation("%p is no handle of a %s", handle, name_of(is));
        return nullptr;
    }
    object *o = found->second;
    if (o->is != is) {
        violation("%p is a %s, not a %s", handle, name_of(o->is), name_of(is));
    } else if (!o->alive) {
        violation("the %s %p has been destroyed", name_of(is), handle);
    } else if (device >= 0 && o->device != device) {
        violation("the %s %p is of device %d, and the current context of device %d", name_of(is), handle, o->device,
                  device);
    } else {
        return o;
    }
    return nullptr;
}

void forgive(const void *handle) {
    const auto found = by_handle.find(handle);
    if (found != by_handle.end()) found->second->forgiven = true;
}

void count(const char *what, long long n) { counters[what] += n; }

int setting(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value != nullptr && *value != 0 ? atoi(value) : otherwise;
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

namespace {
const int caught[] = {SIGSEGV, SIGBUS, SIGFPE};
thread_local sigjmp_buf back;
thread_local volatile bool active;
thread_local void *fault_address;
thread_local int fault_signal;
struct sigaction before[3];

void on_fault(int number, siginfo_t *info, void *context) {
    if (!active) { /* of another thread: its own handler */
        for (int i = 0; i < 3; ++i) {
            if (caught[i] != number) continue;
            if ((before[i].sa_flags & SA_SIGINFO) != 0 && before[i].sa_sigaction != nullptr)
                before[i].sa_sigaction(number, info, context);
            else
                sigaction(number, &before[i], nullptr);
        }
        return;
    }
    fault_address = info->si_addr, fault_signal = number;
    active = false;
    siglongjmp(back, 1);
}
} // namespace

std::string guarded(const std::function<void()> &function) {
    static thread_local std::vector<char> own_stack(128 * 1024);
    stack_t stack = {}, old = {};
    stack.ss_sp = own_stack.data(), stack.ss_size = own_stack.size();
    sigaltstack(&stack, &old);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 3; ++i) sigaction(caught[i], &action, &before[i]);
    std::string out;
    if (sigsetjmp(back, 1) == 0) {
        active = true;
        function();
        active = false;
    } else if (fault_signal == SIGFPE) {
        out = "it divides an integer by 0";
    } else {
        char text[300];
        out = describe_address(fault_address, text, sizeof text);
    }
    for (int i = 0; i < 3; ++i) sigaction(caught[i], &before[i], nullptr);
    if (old.ss_sp == nullptr) old.ss_flags = SS_DISABLE;
    sigaltstack(&old, nullptr);
    return out;
}

/* ---- what tests call --------------------------------------------------------------------------------------------- */

extern "C" {
/* The number of violations so far; their text, one a line. */
STANDIN_EXPORT int standin_violations(char *text, int size) {
    std::lock_guard<std::recursive_mutex> held(lock);
    std::string all;
    for (const std::string &one : violations) all += one + "\n";
    copy_text(all, text, size);
    return (int)violations.size();
}

/* Forgets violations, and that a kernel has failed. */
STANDIN_EXPORT void standin_forget(void) {
    std::lock_guard<std::recursive_mutex> held(lock);
    violations.clear();
    broken = 0;
}

/* The number of objects and allocations that are alive, and their text. Contexts, modules and functions, which a
 * backend may keep for the life of the process, are told but not counted. */
STANDIN_EXPORT int standin_report(char *text, int size) {
    std::lock_guard<std::recursive_mutex> held(lock);
    std::map<std::string, long long> leaks, kept;
    int n = 0;
    for (const object *o : objects) {
        if (!o->alive || o->forgiven || o->is == FUNCTION || o->is == NODE) continue;
        const bool may = o->is == CONTEXT || o->is == MODULE;
        (may ? kept : leaks)[name_of(o->is)]++;
        n += !may;
    }
    std::string out;
    for (const allocation *a : allocations) {
        if (!a->alive || a->forgiven) continue;
        leaks[a->pinned ? "pinned memory" : "memory"]++;
        leaks[a->pinned ? "bytes of pinned memory" : "bytes of memory"] += (long long)a->bytes;
        n++;
    }
    for (const auto &leak : leaks) out += "leak: " + std::to_string(leak.second) + " " + leak.first + "\n";
    for (const auto &one : kept) out += "kept: " + std::to_string(one.second) + " " + one.first + "\n";
    copy_text(out, text, size);
    return n;
}

/* The k-th call of the API from now fails with the code, and has no effect; 0: none does. A wait that fails also ends
 * the queued work that it would wait for. */
STANDIN_EXPORT void standin_fail_at(long long k, int code) {
    std::lock_guard<std::recursive_mutex> held(lock);
    fail_call = k > 0 ? calls + k : 0;
    fail_code = code;
    failed = "";
}
STANDIN_EXPORT const char *standin_failed(void) { return failed; }
STANDIN_EXPORT long long standin_calls(void) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return calls;
}
/* How many of "kernels", "graphs", "copies", "modules" there have been. */
STANDIN_EXPORT long long standin_count(const char *what) {
    std::lock_guard<std::recursive_mutex> held(lock);
    return counters[what];
}
}

namespace {
struct at_exit {
    ~at_exit() {
        char text[4000];
        if (setting("LINNET_STANDIN_REPORT", 0) == 0) return;
        standin_report(text, sizeof text);
        fprintf(stderr, "stand-in: %zu violations\n%s", violations.size(), text);
    }
} reporter;
} // namespace
