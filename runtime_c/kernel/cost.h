/* cost.h - the model of time: the work of a call divided by the rates of the machine. The planner chooses kernels,
 * layouts, thread counts and places by modelled time alone. It never reads a clock, so the same call gets the same
 * kernel in every run. */
#ifndef LN_COST_H
#define LN_COST_H

#include "kernel/machine.h"
#include "kernel/op.h"

/* What a call computes and moves: operations by kind, and bytes. */
struct ln_counts {
    double work[LN_RATES];
    double read, written; /* bytes of the operands and of the results */
};

/* A model of branches that run side by side. Each lane stands for a thread; lanes[i] is the time in nanoseconds that
 * the branches of lane i take together, 0 at first. ln_give_lane gives the next branch, of `ns` nanoseconds, to the
 * lane that is free first. */
enum { LN_MOST_LANES = 32 };
void ln_give_lane(double lanes[], int n, double ns);
/* Returns the nanoseconds until all lanes have finished, with the time to start the threads. */
double ln_lanes_ns(const struct ln_machine *machine, const double lanes[], int n);

/* Returns the rates of the call's plan; the built-in rates for the call's features if it belongs to no plan. */
const struct ln_machine *ln_machine_for(const ln_call *call);

/* Sets *counts to the work that the call has with any kernel: the bytes of its operands and results, what the op's
 * `count` adds, and the map that is fused into it. */
void ln_count_call(const ln_call *call, ln_counts *counts);
/* Adds multiply-accumulates at the rate of the dtype of the call's first operand. */
void ln_count_macs(const ln_call *call, ln_counts *counts, double macs);
/* Returns the operations per element of a map's program, in additions. */
double ln_map_operations(const ln_map_attributes *map);
/* Returns the nanoseconds that the work takes on one core, without the time that every step takes (ln_machine.step).
 * `needs` are the features that the kernel needs (ln_kernel.needs). They select the row of rates. */
double ln_counts_ns(const struct ln_machine *machine, ln_features needs, const ln_counts *counts);
/* Returns the modelled nanoseconds of the call with the kernel, on one thread. The kernel must be able to run the call.
 */
double ln_kernel_cost(const ln_kernel *kernel, const ln_call *call);
/* Returns the modelled nanoseconds of a copy that changes the layout of a tensor. */
double ln_conversion_cost(const struct ln_machine *machine, ln_features features, const ln_tensor *t);
/* Returns the work of a transpose per element, in moves of one element. n is the size of its shorter axis. From 16 on,
 * blocks of 16 x 16 are transposed in registers. */
static inline double ln_transpose_moves(int64_t n) { return n >= 16 ? 0.27 : n > 4 ? 4.3 / (double)n : 1.1; }
/* Returns the number of threads, at most `most`, for work of `ns` nanoseconds. The part of each thread takes at least
 * twice as long as giving work to a thread. Returns 1 if more threads are not faster. */
int ln_best_threads(const struct ln_machine *machine, double ns, int most);
/* Returns how long work takes on several threads if it takes `ns` nanoseconds on one. */
double ln_threads_ns(const struct ln_machine *machine, double ns, int threads);

/* The `cost` of the references of products. It adds the conversion of sums one by one. It also adds a constant, so that
 * the reference does not win very small products, for which the preparation of a fast kernel dominates. */
void ln_reference_product_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
/* Returns the number of 32-bit elements in a vector of the kernel's instruction set. */
int64_t ln_lanes(const ln_kernel *kernel);
/* For the `cost` of kernels whose vectors run along lines of n 32-bit elements. The last vector of a line may be short.
 * Returns the factor (at least 1) by which it makes the line slower. */
double ln_short_lines(const ln_kernel *kernel, int64_t n);
/* Multiply the counts of multiply-accumulates, or the count of other operations, for a kernel that does more or less
 * than the op's own work. */
static inline void ln_scale_products(ln_counts *counts, double factor) {
    for (int i = LN_RATE_F32; i <= LN_RATE_I16; ++i) counts->work[i] *= factor;
}
static inline void ln_scale_operations(ln_counts *counts, double factor) { counts->work[LN_RATE_MAP] *= factor; }

#endif
