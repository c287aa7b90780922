/* machine.h - the rates of a machine, by which the planner models times (cost.h). */
#ifndef LN_MACHINE_H
#define LN_MACHINE_H

#include "kernel/kernel.h"

/* Kinds of work that a machine does at different rates. */
enum ln_rate {
    LN_RATE_F32,  /* multiply-accumulates of floats */
    LN_RATE_I8,   /* multiply-accumulates of 8-bit integers */
    LN_RATE_I16,  /* multiply-accumulates of 16-bit integers with 8-bit weights */
    LN_RATE_MAP,  /* simple operations on 32-bit elements, such as an addition; an exponential counts as several */
    LN_RATE_MOVE, /* elements that are loaded and stored one by one */
    LN_RATES
};

/* A machine. Rates are per nanosecond and core. There is one row per entry of ln_isa_sets, because a kernel runs at the
 * rate of the instructions that it was compiled for. References have the row "scalar". */
enum { LN_RATE_ROWS = 5 };
struct ln_machine {
    float rates[LN_RATE_ROWS][LN_RATES];
    float cache, shared, memory; /* bytes per nanosecond in a core's cache, in the cache of all cores, and in memory */
    float step;                  /* nanoseconds that every step takes, however small it is */
    float fork;                  /* nanoseconds to give work to another thread and to wait for that thread */
    float thread;                /* the share of a core's rates that each further thread adds; less than 1 where threads
                                  * share a core, its clock or the memory */
    float widest;                /* The graph may declare f16 or bf16 for an intermediate value. The planner keeps the
                                  * value in f32 if it then has at most this many bytes, because conversions take longer
                                  * than moving twice as many bytes through the caches. 0: no value is kept in f32 */
};

/* The sizes in bytes that the model assumes for the cache of a core and for the cache that all cores share. */
enum { LN_OWN_CACHE = 512 << 10, LN_SHARED_CACHE = 24 << 20 };

/* Returns the built-in rates for a processor with these features. Never NULL. */
const struct ln_machine *ln_machine_of(ln_features features);
/* Tells whether this processor executes instructions in order, so that kernels should put other instructions between a
 * load and its use. */
bool ln_in_order(void);
/* Sets one rate. The name is that of a tuning file, of `length` characters without a NUL, such as "avx2 f32" or
 * "memory". Returns false, and changes nothing, if no rate has this name. */
bool ln_machine_set(struct ln_machine *machine, const char *name, size_t length, double value);

#endif
