/* machine.h - the rates of the machine that plans are made for. */
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

/* A machine. Rates are per nanosecond and core, with one row per instruction set (the rows of ln_isa_sets), because a
 * kernel runs at the rate of the instructions that it was compiled for. The row of the references is "scalar". */
enum { LN_RATE_ROWS = 5 };
struct ln_machine {
    float rates[LN_RATE_ROWS][LN_RATES];
    float cache, shared, memory; /* bytes per nanosecond in a core's cache, in the cache of all cores, and beyond */
    float step;                  /* nanoseconds of any step */
    float fork;                  /* nanoseconds to give work to another thread and to wait for it */
    float thread;                /* of a core's rates, what each further thread adds: less than 1 where threads share
                                  * a core, its clock or the memory */
    float widest;                /* bytes of the largest value inside a program that is kept in f32 where the graph says
                                  * f16 or bf16, because conversions take longer than the caches need for the other
                                  * half; 0: none is */
};

/* Bytes in the cache of a core, and in the cache that cores share. */
enum { LN_OWN_CACHE = 512 << 10, LN_SHARED_CACHE = 24 << 20 };

/* The built-in rates for a processor with these features. */
const struct ln_machine *ln_machine_of(ln_features features);
/* Whether this processor executes in order, so that kernels have to keep loads and uses apart. */
bool ln_in_order(void);
/* Sets a rate from the words of a line of a tuning file: "avx2 f32", "memory". Returns false if there is no rate of
 * this name. */
bool ln_machine_set(struct ln_machine *machine, const char *name, size_t length, double value);

#endif
