/* cost.h - the model of time: the work of a call divided by the rates of the machine. The planner takes kernels,
 * layouts, threads and places by this one number. It never reads a clock, so the same call gets the same kernel in
 * every run. */
#ifndef LN_COST_H
#define LN_COST_H

#include "kernel/machine.h"
#include "kernel/op.h"

/* What a call computes and moves. */
struct ln_counts {
    double work[LN_RATES];
    double read, written; /* bytes of the operands and of the results */
};

/* Branches that run side by side, each on one thread (a lane). Gives the next branch, of `ns` nanoseconds, to the lane
 * that is free first. */
enum { LN_MOST_LANES = 32 };
void ln_give_lane(double lanes[], int n, double ns);
/* Nanoseconds until all lanes have finished. */
double ln_lanes_ns(const struct ln_machine *machine, const double lanes[], int n);

/* The rates of the call's plan, or the built-in rates if the call belongs to none. */
const struct ln_machine *ln_machine_for(const ln_call *call);

/* The work of the call, whatever kernel runs it: the bytes of its operands, the op's function, and the map that is
 * fused into it. */
void ln_count_call(const ln_call *call, ln_counts *counts);
/* Adds multiply-accumulates at the rate of the dtype of the call's first operand. */
void ln_count_macs(const ln_call *call, ln_counts *counts, double macs);
/* Operations per element of a map's program. */
double ln_map_operations(const ln_map_attributes *map);
/* Nanoseconds on one core with the instructions of a set, without the time that every step takes. `needs` is that of a
 * kernel. */
double ln_counts_ns(const struct ln_machine *machine, ln_features needs, const ln_counts *counts);
/* Modelled nanoseconds of the call with the kernel, on one thread. */
double ln_kernel_cost(const ln_kernel *kernel, const ln_call *call);
/* Modelled nanoseconds of a copy that changes the layout of a tensor. */
double ln_conversion_cost(const struct ln_machine *machine, ln_features features, const ln_tensor *t);
/* Moves per element of a transpose whose shorter axis has n elements. Blocks of 16 x 16 are transposed in registers. */
static inline double ln_transpose_moves(int64_t n) { return n >= 16 ? 0.27 : n > 4 ? 4.3 / (double)n : 1.1; }
/* The number of threads, at most `most`, for work of `ns` nanoseconds: each part takes several times as long as giving
 * it to a thread. */
int ln_best_threads(const struct ln_machine *machine, double ns, int most);
/* Nanoseconds of work of `ns` nanoseconds on so many threads. */
double ln_threads_ns(const struct ln_machine *machine, double ns, int threads);

/* `cost` of the references of products: sums are converted one by one, and so few products that the preparation of a
 * fast kernel takes longer are no reason to leave it. */
void ln_reference_product_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts);
/* Elements of 32 bits in a vector of the kernel. */
int64_t ln_lanes(const ln_kernel *kernel);
/* For `cost` of kernels whose vectors run along lines of n elements of 32 bits: the factor by which the last vector of
 * a line, which may be short, makes a line slower. */
double ln_short_lines(const ln_kernel *kernel, int64_t n);
/* Multiplies the products, or the other operations. */
static inline void ln_scale_products(ln_counts *counts, double factor) {
    for (int i = LN_RATE_F32; i <= LN_RATE_I16; ++i) counts->work[i] *= factor;
}
static inline void ln_scale_operations(ln_counts *counts, double factor) { counts->work[LN_RATE_MAP] *= factor; }

#endif
