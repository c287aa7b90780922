/* test_cost.c - the model of time: the work that ops count is compared with loops that count it one by one, and times
 * follow the rates of the instructions that a kernel was compiled for. */
#include "kernel/cost.h"
#include "base/layout.h"
#include "check.h"
#include "kernel/cpu.h"
#include "kernel/machine.h"

#include <string.h>

static ln_tensor tensor(int dtype, int rank, const int64_t *dims) {
    ln_tensor t = {.dtype = (uint8_t)dtype, .rank = (int8_t)rank};
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    ln_set_layout(&t, LN_LAYOUT_DENSE);
    return t;
}

static ln_call call_of(int op, const void *attributes, const ln_tensor *tensors, int n_inputs) {
    return (ln_call){.op = &ln_ops[op],
                     .attributes = attributes,
                     .n_inputs = n_inputs,
                     .n_outputs = 1,
                     .inputs = tensors,
                     .outputs = tensors + n_inputs,
                     .inner = tensors + n_inputs,
                     .features = ln_detect_features(),
                     .threads = 1};
}

/* A convolution of 5 x 7 pixels without padding, whose products are counted one by one. */
static void convolutions(int dtype, int rate) {
    static const int64_t groups[] = {1, 2, 6};
    for (int i = 0; i < 3; ++i) {
        const int64_t g = groups[i], x[] = {2, 6, 5, 7}, w[] = {6, 6 / g, 3, 2}, y[] = {2, 6, 3, 6};
        double macs = 0;
        for (int64_t n = 0; n < y[0]; ++n)
            for (int64_t o = 0; o < y[1]; ++o)
                for (int64_t p = 0; p < y[2] * y[3]; ++p)
                    for (int64_t k = 0; k < w[1] * w[2] * w[3]; ++k) ++macs;
        const ln_tensor tensors[] = {tensor(dtype, 4, x), tensor(dtype == LINNET_F32 ? dtype : LINNET_I8, 4, w),
                                     tensor(dtype, 4, y)};
        const ln_conv_attributes a = {.group = g, .channel_axis = 1};
        const ln_call call = call_of(LN_OP_CONV, &a, tensors, 2);
        ln_counts counts;
        ln_count_call(&call, &counts);
        CHECK(counts.work[rate] == macs);
        for (int r = 0; r <= LN_RATE_I16; ++r) CHECK(r == rate || counts.work[r] == 0);
        CHECK(counts.written == (double)(ln_count(&tensors[2]) * (int64_t)ln_dtype_size(dtype)));
    }
}

static void products(void) {
    const int64_t a[] = {3, 1, 4, 5}, b[] = {2, 5, 6}, y[] = {3, 2, 4, 6}; /* six products of 4 x 5 x 6 */
    const ln_tensor tensors[] = {tensor(LINNET_F32, 4, a), tensor(LINNET_F32, 3, b), tensor(LINNET_F32, 4, y)};
    const ln_matmul_attributes none = {0};
    const ln_call call = call_of(LN_OP_MATMUL, &none, tensors, 2);
    ln_counts counts;
    ln_count_call(&call, &counts);
    CHECK(counts.work[LN_RATE_F32] == 6 * 4 * 5 * 6);
    CHECK(counts.read == 4.0 * (3 * 4 * 5 + 2 * 5 * 6));
}

/* A lookup reads the rows that it gives, not its table. */
static void lookups(void) {
    const int64_t table[] = {100000, 8}, ids[] = {3}, y[] = {3, 8};
    const ln_tensor tensors[] = {tensor(LINNET_F32, 2, table), tensor(LINNET_I64, 1, ids), tensor(LINNET_F32, 2, y)};
    const ln_gather_attributes a = {0};
    const ln_call call = call_of(LN_OP_GATHER, &a, tensors, 2);
    ln_counts counts;
    ln_count_call(&call, &counts);
    CHECK(counts.written == 96 && counts.read == 96 + 24);
}

static void rates(void) {
    const struct ln_machine *machine = ln_machine_of(ln_detect_features());
    ln_counts work = {.work = {[LN_RATE_F32] = 1e6}};
    double last = ln_counts_ns(machine, LN_ISA_SCALAR, &work);
    CHECK(last > 0);
    for (int i = 1; i < LN_RATE_ROWS && ln_isa_sets[i].name[0] != 0; ++i) { /* wider sets are not slower */
        const double ns = ln_counts_ns(machine, ln_isa_sets[i].most, &work);
        CHECK(ns > 0 && ns <= last);
        last = ns;
    }
#if defined(__x86_64__)
    CHECK(ln_counts_ns(machine, LN_ISA_avx2, &work) < ln_counts_ns(machine, LN_ISA_sse2, &work) / 2);
#endif
    ln_counts twice = {.work = {[LN_RATE_F32] = 2e6}};
    CHECK(ln_counts_ns(machine, LN_ISA_SCALAR, &twice) > 1.99 * ln_counts_ns(machine, LN_ISA_SCALAR, &work));
    double before = 0;
    for (double bytes = 1; bytes < 1e9; bytes *= 2) { /* more bytes never take less time */
        ln_counts moved = {.read = bytes};
        const double ns = ln_counts_ns(machine, LN_ISA_SCALAR, &moved);
        CHECK(ns >= before);
        before = ns;
    }
}

static void names(void) {
    struct ln_machine m = *ln_machine_of(ln_detect_features());
    CHECK(ln_machine_set(&m, "memory", 6, 3.5) && m.memory == 3.5f);
    CHECK(ln_machine_set(&m, "fork", 4, 500) && m.fork == 500);
    CHECK(ln_machine_set(&m, "scalar map", 10, 0.5) && m.rates[0][LN_RATE_MAP] == 0.5f);
    CHECK(ln_machine_set(&m, "scalar i16", 10, 0.7) && m.rates[0][LN_RATE_I16] == 0.7f);
    CHECK(!ln_machine_set(&m, "scalar", 6, 1) && !ln_machine_set(&m, "scalar f", 8, 1) &&
          !ln_machine_set(&m, "mem", 3, 1));
    CHECK(!ln_machine_set(&m, "sse9 f32", 8, 1) && !ln_machine_set(&m, "", 0, 1));
}

static void threads(void) {
    struct ln_machine m = *ln_machine_of(ln_detect_features());
    m.fork = 1000;
    m.thread = 0.5;
    CHECK(ln_threads_ns(&m, 9000, 1) == 9000 && ln_threads_ns(&m, 9000, 2) == 7000 &&
          ln_threads_ns(&m, 9000, 5) == 4000);
    CHECK(ln_best_threads(&m, 0, 8) == 1 && ln_best_threads(&m, 1500, 8) == 1);
    CHECK(ln_best_threads(&m, 1e9, 8) == 8 && ln_best_threads(&m, 1e9, 1) == 1);
    int last = 1;
    for (double ns = 1; ns < 1e6; ns *= 1.5) {
        const int n = ln_best_threads(&m, ns, 8);
        CHECK(n >= last && n <= 8 && (n == 1 || ns / n >= m.fork));
        last = n;
    }
    CHECK(last == 8);
    m.thread = 0.01f; /* threads that add nothing are left out */
    CHECK(ln_best_threads(&m, 20000, 4) == 1 && ln_best_threads(&m, 1e9, 4) == 4);
}

int main(void) {
    convolutions(LINNET_F32, LN_RATE_F32);
    convolutions(LINNET_I8, LN_RATE_I8);
    convolutions(LINNET_I16, LN_RATE_I16);
    products();
    lookups();
    rates();
    names();
    threads();
    return check_end("cost");
}
