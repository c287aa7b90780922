/* cost.c - counts the work of calls and divides it by the rates of a machine (kernel/cost.h). The `count` function of
 * an op is beside its reference, in runtime_c/ops. The extra work of a kernel is in the kernel's own function
 * `cost`. */
#include "kernel/cost.h"

#include "kernel/machine.h"
#include "kernel/map.h"

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static double bytes_of(const ln_tensor *t) { return t->dtype == LINNET_NONE ? 0 : (double)ln_known_bytes(t); }

static double elements_of(const ln_tensor *t) {
    const int64_t count = t->dtype == LINNET_NONE ? 0 : ln_count(t);
    return count > 0 ? (double)count : 0;
}

double ln_map_operations(const ln_map_attributes *map) {
    enum { WORDS = 5 }; /* integers of one instruction (schema/map_opcodes.toml) */
    double operations = 0;
    for (int64_t i = 0; i + WORDS <= map->program.n; i += WORDS) operations += ln_map_opcodes[map->program.v[i]].work;
    return operations;
}

void ln_count_macs(const ln_call *call, ln_counts *counts, double macs) {
    const int dtype = call->inputs[0].dtype;
    counts->work[ln_dtype_is_float(dtype) ? LN_RATE_F32 : ln_dtype_bits(dtype) > 8 ? LN_RATE_I16 : LN_RATE_I8] += macs;
}

void ln_count_call(const ln_call *call, ln_counts *counts) {
    *counts = (ln_counts){0};
    const bool looks_up = (call->op->flags & LN_OP_LOOKS_UP) != 0;
    for (int i = 0; i < call->n_outputs; ++i) counts->written += bytes_of(&call->outputs[i]);
    for (int i = looks_up; i < call->n_inputs + call->n_extra; ++i) counts->read += bytes_of(&call->inputs[i]);
    if (looks_up) counts->read += counts->written;
    if (call->op->count != NULL) {
        call->op->count(call, counts);
    } else {
        for (int i = 0; i < call->n_outputs; ++i) counts->work[LN_RATE_MAP] += elements_of(&call->outputs[i]);
    }
    const ln_epilogue *e = call->epilogue;
    if (e != NULL && !e->clamp_only)
        counts->work[LN_RATE_MAP] += elements_of(&call->outputs[0]) * (2 + ln_map_operations(e->map));
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Returns the row of the fastest instruction set that the kernel needs, in the machine's table of rates. */
static int row_of(ln_features needs) {
    int row = 0;
    for (int i = 1; i < LN_RATE_ROWS && ln_isa_sets[i].name[0] != 0; ++i)
        if (ln_isa_sets[i].mark & needs) row = i;
    return row;
}

double ln_counts_ns(const struct ln_machine *machine, ln_features needs, const ln_counts *counts) {
    const float *rates = machine->rates[row_of(needs)];
    const double bytes = counts->read + counts->written;
    double ns = bytes / (double)machine->cache;
    if (bytes > LN_OWN_CACHE) ns += (bytes - LN_OWN_CACHE) / (double)machine->shared;
    if (bytes > LN_SHARED_CACHE) ns += (bytes - LN_SHARED_CACHE) / (double)machine->memory;
    for (int i = 0; i < LN_RATES; ++i) ns += counts->work[i] / rates[i];
    return ns;
}

const struct ln_machine *ln_machine_for(const ln_call *call) {
    return call->machine != NULL ? call->machine : ln_machine_of(call->features);
}

double ln_kernel_cost(const ln_kernel *kernel, const ln_call *call) {
    ln_counts counts;
    ln_count_call(call, &counts);
    if (kernel->code->cost != NULL) kernel->code->cost(kernel, call, &counts);
    const struct ln_machine *machine = ln_machine_for(call);
    return (double)machine->step + ln_counts_ns(machine, kernel->needs, &counts);
}

double ln_conversion_cost(const struct ln_machine *machine, ln_features features, const ln_tensor *t) {
    const double bytes = bytes_of(t);
    ln_counts counts = {.read = bytes, .written = bytes};
    const int64_t shorter = t->rank > 1 ? ln_min(t->dims[1], t->dims[t->rank - 1]) : 0;
    counts.work[LN_RATE_MOVE] = elements_of(t) * ln_transpose_moves(shorter);
    return machine->step + ln_counts_ns(machine, features, &counts);
}

int ln_best_threads(const struct ln_machine *machine, double ns, int most) {
    enum { PARTS = 2 };
    const double parts = ns / (PARTS * (double)machine->fork);
    const int n = parts >= most ? most : parts < 1 ? 1 : (int)parts;
    return ln_threads_ns(machine, ns, n) < ns ? n : 1;
}

double ln_threads_ns(const struct ln_machine *machine, double ns, int threads) {
    return threads > 1 ? ns / (1 + (threads - 1) * (double)machine->thread) + (double)machine->fork : ns;
}

void ln_give_lane(double lanes[], int n, double ns) {
    int least = 0;
    for (int i = 1; i < n; ++i)
        if (lanes[i] < lanes[least]) least = i;
    lanes[least] += ns;
}

double ln_lanes_ns(const struct ln_machine *machine, const double lanes[], int n) {
    double total = 0, longest = 0;
    for (int i = 0; i < n; ++i) {
        total += lanes[i];
        if (lanes[i] > longest) longest = lanes[i];
    }
    const double shared = total / (1 + (n - 1) * (double)machine->thread); /* because threads slow each other down */
    return (longest > shared ? longest : shared) + (double)machine->fork;
}

void ln_reference_product_cost(const ln_kernel *kernel, const ln_call *call, ln_counts *counts) {
    (void)kernel;
    counts->work[LN_RATE_MOVE] += 300 + 8 * elements_of(&call->outputs[0]);
}

int64_t ln_lanes(const ln_kernel *kernel) {
#if defined(__x86_64__) || defined(_M_X64)
    return kernel->needs & LN_AVX512 ? 16 : kernel->needs & LN_AVX2 ? 8 : 4;
#else
    (void)kernel;
    return 4;
#endif
}

double ln_short_lines(const ln_kernel *kernel, int64_t n) {
    const int64_t lanes = ln_lanes(kernel);
    if (n <= 0 || n % lanes == 0) return 1;
    /* A short vector of AVX-512 was measured to take as long as two to five whole vectors, because its elements are
     * moved one by one. With other instruction sets, a short vector takes about as long as a whole one. */
    const double vectors = (double)(n / lanes) + (lanes == 16 ? 3.5 : 1);
    return vectors * (double)lanes / (double)n;
}
