/* cpu_fibers.h - the threads of a block that wait for each other: each has a stack of its own, and they run in turn on
 * one thread of the system. Barriers that a part of a block never reaches are errors. A part of cuda_on_cpu.h. */
#ifndef LG_CPU_FIBERS_H
#define LG_CPU_FIBERS_H

enum { LG_CPU_RUNS, LG_CPU_AT_BARRIER, LG_CPU_AT_NAMED, LG_CPU_AT_WARP, LG_CPU_YIELDS, LG_CPU_DONE };
enum { LG_CPU_WARP_BYTES = 1024, LG_CPU_WARPS = lg_cpu_most_threads / 32, LG_CPU_PATIENCE = 100000 };

struct lg_cpu_thread {
    void *stack; /* where the stack ends while it does not run */
    int number, state, site, most;
};
struct lg_cpu_group {
    int live, arrived;
    unsigned round;
    size_t size; /* of what the lanes exchange */
    alignas(16) char data[2][32 * LG_CPU_WARP_BYTES];
};
static struct {
    void *stack; /* of the scheduler */
    lg_cpu_thread *now;
    lg_cpu_body *body;
    void **parameters;
    const char *problem;
    lg_cpu_thread threads[lg_cpu_most_threads];
} lg_cpu;
static lg_cpu_group lg_cpu_groups[LG_CPU_WARPS];

/* Saves the registers on the stack, stores where it ends in *from, and goes on where another stack was left. */
extern "C" __attribute__((visibility("hidden"))) void lg_cpu_switch(void **from, void *to);
#if defined(__x86_64__)
asm(".text\n.local lg_cpu_switch\n.type lg_cpu_switch,@function\nlg_cpu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
enum { LG_CPU_SAVED = 6 /* registers below the address of return */, LG_CPU_RETURN = 6, LG_CPU_FRAME = 8 };
#elif defined(__aarch64__)
asm(".text\n.local lg_cpu_switch\n.type lg_cpu_switch,%function\nlg_cpu_switch:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\n"
    "stp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\n"
    "ldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
enum { LG_CPU_RETURN = 11, LG_CPU_FRAME = 20 };
#else
#error "cpu_fibers.h has no switch of stacks for this processor"
#endif

static void lg_cpu_leave(int state) {
    lg_cpu.now->state = state;
    lg_cpu_switch(&lg_cpu.now->stack, lg_cpu.stack);
}

static void lg_cpu_stop(const char *problem) {
    if (lg_cpu.problem == nullptr) lg_cpu.problem = problem;
    for (;;) lg_cpu_leave(LG_CPU_DONE);
}

static void lg_cpu_release(lg_cpu_group *w) {
    const int first = (int)(w - lg_cpu_groups) * 32;
    for (int i = first; i < first + 32; ++i)
        if (lg_cpu.threads[i].state == LG_CPU_AT_WARP) lg_cpu.threads[i].state = LG_CPU_RUNS;
    w->arrived = 0;
    w->round++;
}

static void lg_cpu_enter() {
    lg_cpu.body(lg_cpu.parameters);
    lg_cpu_group *w = &lg_cpu_groups[lg_cpu.now->number / 32];
    w->live--;
    if (w->arrived > 0 && w->arrived == w->live) lg_cpu_release(w);
    for (;;) lg_cpu_leave(LG_CPU_DONE);
}

/* ---- what kernels call ------------------------------------------------------------------------------------------- */

static inline int lg_cpu_number() { return lg_cpu.now->number; } /* of this thread in its block */
static inline int lg_cpu_lane() { return lg_cpu.now->number % 32; }

static __attribute__((noinline)) void lg_cpu_barrier(int site) {
    lg_cpu.now->site = site;
    lg_cpu_leave(LG_CPU_AT_BARRIER);
}
#define __syncthreads() lg_cpu_barrier(__COUNTER__)

/* bar.sync number, threads: any `threads` threads of the block. */
static __attribute__((noinline)) void lg_cpu_named_barrier(int number, int threads) {
    int arrived = 1;
    for (int i = 0; i < lg_cpu_most_threads; ++i)
        arrived += lg_cpu.threads[i].state == LG_CPU_AT_NAMED && lg_cpu.threads[i].site == number;
    if (arrived < threads) {
        lg_cpu.now->site = number;
        lg_cpu_leave(LG_CPU_AT_NAMED);
        return;
    }
    for (int i = 0; i < lg_cpu_most_threads; ++i)
        if (lg_cpu.threads[i].state == LG_CPU_AT_NAMED && lg_cpu.threads[i].site == number)
            lg_cpu.threads[i].state = LG_CPU_RUNS;
}

/* Lets the other threads run: in loops that wait for a value in memory. */
static __attribute__((noinline)) void lg_cpu_yield() { lg_cpu_leave(LG_CPU_YIELDS); }

/* Every lane of a warp calls it. Afterwards `all` has the `size` bytes of lane i at i * size; those of lanes that have
 * returned, or are beyond the end of the block, are not set. */
static __attribute__((noinline)) void lg_cpu_warp(const void *mine, void *all, size_t size) {
    lg_cpu_group *w = &lg_cpu_groups[lg_cpu.now->number / 32];
    char *data = w->data[w->round % 2];
    if (size > LG_CPU_WARP_BYTES) lg_cpu_stop("a warp exchanges more than LG_CPU_WARP_BYTES per lane");
    if (w->arrived > 0 && w->size != size) lg_cpu_stop("the lanes of a warp are at different operations of the warp");
    w->size = size;
    if (size > 0) __builtin_memcpy(data + lg_cpu_lane() * size, mine, size);
    if (++w->arrived == w->live)
        lg_cpu_release(w);
    else
        lg_cpu_leave(LG_CPU_AT_WARP);
    /* No lane writes here before all have arrived once more. */
    if (size > 0) __builtin_memcpy(all, data, 32 * size);
}

static inline void lg_cpu_whole(unsigned mask) {
    if (mask != 0xffffffffu) lg_cpu_stop("operations of a part of a warp are not emulated");
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    lg_cpu_whole(mask);
    lg_cpu_warp(nullptr, nullptr, 0);
}
template <class T> static inline T lg_cpu_shuffle(unsigned mask, T v, int from, int width) {
    T all[32];
    const int lane = lg_cpu_lane(), first = lane / width * width;
    lg_cpu_whole(mask);
    lg_cpu_warp(&v, all, sizeof v);
    return from >= first && from < first + width ? all[from] : v;
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    return lg_cpu_shuffle(mask, v, lg_cpu_lane() / width * width + (from & (width - 1)), width);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32) {
    return lg_cpu_shuffle(mask, v, lg_cpu_lane() ^ by, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    return lg_cpu_shuffle(mask, v, lg_cpu_lane() + (int)by, width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    return lg_cpu_shuffle(mask, v, lg_cpu_lane() - (int)by, width);
}
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    int all[32] = {0};
    unsigned out = 0;
    lg_cpu_whole(mask);
    const int live = lg_cpu_groups[lg_cpu.now->number / 32].live;
    lg_cpu_warp(&vote, all, sizeof vote);
    for (int i = 0; i < live; ++i) out |= (unsigned)(all[i] != 0) << i;
    return out;
}
static inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
static inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote == 0) == 0; }

/* ---- the scheduler ----------------------------------------------------------------------------------------------- */

static int lg_cpu_counted(int n, int state) {
    int count = 0;
    for (int i = 0; i < n; ++i) count += lg_cpu.threads[i].state == state;
    return count;
}

/* All threads stand still: they go on if they are all at one barrier. Else returns 1, with the reason. */
static int lg_cpu_proceed(const lg_cpu_launch *launch, int n) {
    const int barrier = lg_cpu_counted(n, LG_CPU_AT_BARRIER), done = lg_cpu_counted(n, LG_CPU_DONE);
    int sites = 0;
    for (int i = 0; i < n; ++i) sites += lg_cpu.threads[i].site != lg_cpu.threads[0].site;
    if (barrier == n && sites == 0) {
        for (int i = 0; i < n; ++i) lg_cpu.threads[i].state = LG_CPU_RUNS;
        return 0;
    }
    __builtin_snprintf(launch->error, lg_cpu_error_bytes,
                       barrier == n
                           ? "the threads of block (%u, %u, %u) are at different barriers"
                           : "a barrier is divergent: of the threads of block (%u, %u, %u), %d are at a barrier, %d "
                             "at a named barrier, %d wait for the other lanes of their warp, %d have returned",
                       blockIdx.x, blockIdx.y, blockIdx.z, barrier, lg_cpu_counted(n, LG_CPU_AT_NAMED),
                       lg_cpu_counted(n, LG_CPU_AT_WARP), done);
    return 1;
}

static int lg_cpu_block(const lg_cpu_launch *launch, lg_cpu_body *body, void **parameters, unsigned *state) {
    const int n = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    unsigned short order[lg_cpu_most_threads];
    lg_cpu.body = body, lg_cpu.parameters = parameters, lg_cpu.problem = nullptr;
    for (int i = 0; i < lg_cpu_most_threads; ++i) lg_cpu.threads[i].state = LG_CPU_DONE;
    for (int w = 0; w * 32 < n; ++w) {
        lg_cpu_groups[w].live = n - w * 32 < 32 ? n - w * 32 : 32;
        lg_cpu_groups[w].arrived = 0;
    }
    for (int i = 0; i < n; ++i) {
        void **top = (void **)(launch->stacks + (size_t)(i + 1) * launch->stack_bytes) - 2 - LG_CPU_FRAME;
        top[LG_CPU_RETURN] = (void *)lg_cpu_enter;
        lg_cpu.threads[i] = {top, i, LG_CPU_RUNS, 0, 0};
    }
    int patience = LG_CPU_PATIENCE;
    bool arranged = false;
    for (int left = n; left > 0;) {
        int ran = 0, yielded = 0;
        if (launch->order > 1 || !arranged) lg_cpu_arrange(order, n, launch->order, state);
        arranged = true;
        for (int k = 0; k < n; ++k) {
            lg_cpu_thread *t = &lg_cpu.threads[order[k]];
            if (t->state != LG_CPU_RUNS && t->state != LG_CPU_YIELDS) continue;
            yielded += t->state == LG_CPU_YIELDS;
            t->state = LG_CPU_RUNS;
            threadIdx = lg_cpu_place((unsigned)order[k], launch->block);
            lg_cpu.now = t;
            lg_cpu_switch(&lg_cpu.stack, t->stack);
            ran++;
            left -= t->state == LG_CPU_DONE;
            if (lg_cpu.problem != nullptr) {
                __builtin_snprintf(launch->error, lg_cpu_error_bytes, "%s", lg_cpu.problem);
                return 1;
            }
        }
        if (ran == 0 && lg_cpu_proceed(launch, n) != 0) return 1;
        patience = ran > yielded || ran == 0 ? LG_CPU_PATIENCE : patience - 1;
        if (patience == 0) {
            __builtin_snprintf(launch->error, lg_cpu_error_bytes, "threads wait in a loop for what none of them does");
            return 1;
        }
    }
    return 0;
}

#endif
