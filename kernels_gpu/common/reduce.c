/* reduce.c - reductions: the kernels of reduce.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/lines.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

enum { SUM, MEAN, MAX, MIN, PROD, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP, ARGMAX, ARGMIN }; /* docs/ops.md */
/* Most kept dimensions, and most reduced ones. Neighbours of the same kind are merged, so in the worst case the 8
 * dimensions alternate. */
enum { MOST_DIMS = 4 };

/* The dimensions of a reduction: adjacent kept dimensions are merged, as are adjacent reduced ones, and dimensions of
 * size 1 are left out. Unused dimensions come first. */
typedef struct reduction {
    int n_reduced;
    int64_t kept[MOST_DIMS], kept_step[MOST_DIMS], reduced[MOST_DIMS], reduced_step[MOST_DIMS];
    int64_t results, count; /* count: elements that are reduced to one result */
} reduction;

static int64_t integer_of(const linnet_device_tensor *t, int64_t i) {
    return t->dtype == LINNET_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

/* Sets bit d of *mask if axis d is reduced. Returns false if the axes are not known. */
static bool axes_of(const lg_step *s, uint32_t *mask) {
    const int rank = s->inputs[0].rank;
    int64_t n = lg_items(s, "axes");
    const linnet_device_tensor *axes = lg_absent(s, 1) ? NULL : &s->inputs[1];
    if (axes != NULL) {
        n = lg_count(axes);
        if (n > 0 && (axes->data == NULL || (axes->dtype != LINNET_I32 && axes->dtype != LINNET_I64))) return false;
    }
    *mask = n == 0 && lg_integer(s, "noop_with_empty_axes", 0) == 0 ? (1u << rank) - 1u : 0;
    for (int64_t i = 0; i < n; ++i) {
        const int d = lg_axis(axes != NULL ? integer_of(axes, i) : lg_item(s, "axes", (int)i, 0), rank);
        if (d < 0 || d >= rank) return false;
        *mask |= 1u << d;
    }
    return true;
}

static bool open(const lg_step *s, reduction *r) {
    const linnet_device_tensor *x = &s->inputs[0];
    uint32_t mask;
    int n[2] = {0, 0};
    int64_t sizes[2][MOST_DIMS], steps[2][MOST_DIMS];
    if (!axes_of(s, &mask)) return false;
    for (int d = x->rank - 1; d >= 0; --d) {
        const int of = (int)(mask >> d & 1u), last = n[of] - 1;
        if (x->shape[d] == 1) continue;
        if (last >= 0 && sizes[of][last] * steps[of][last] == x->strides[d]) {
            sizes[of][last] *= x->shape[d];
        } else if (n[of] == MOST_DIMS) {
            return false;
        } else {
            sizes[of][n[of]] = x->shape[d], steps[of][n[of]++] = x->strides[d];
        }
    }
    *r = (reduction){.n_reduced = n[1], .results = 1, .count = 1};
    for (int i = 0; i < MOST_DIMS; ++i) {
        const int to = MOST_DIMS - 1 - i;
        r->kept[to] = i < n[0] ? sizes[0][i] : 1, r->kept_step[to] = i < n[0] ? steps[0][i] : 0;
        r->reduced[to] = i < n[1] ? sizes[1][i] : 1, r->reduced_step[to] = i < n[1] ? steps[1][i] : 0;
        r->results *= r->kept[to], r->count *= r->reduced[to];
    }
    return true;
}

static bool is_float(int dtype) { return lg_is_float(dtype) || dtype == LINNET_F64; }
static bool is_arg(int64_t kind) { return kind == ARGMAX || kind == ARGMIN; }

static bool dequantizes(const lg_step *s) {
    return lg_is_quantized(&s->inputs[0]) && s->result.dtype == LINNET_F32 && !lg_is_float(s->inputs[0].dtype);
}

bool lg_can_reduce(const lg_step *s) {
    reduction r;
    const linnet_device_tensor *x = &s->inputs[0], *y = &s->result;
    const int64_t kind = lg_integer(s, "kind", SUM);
    if (!lg_can_store(s) || lg_type_of(x->dtype) == NULL) return false;
    if (x->dtype == LINNET_F64 && !s->machine->f64) return false;
    if (!lg_lines_fit(s) || !open(s, &r) || r.results != lg_count(y)) return false;
    if (is_arg(kind)) return y->dtype == LINNET_I64;
    if (dequantizes(s)) return x->quant_count == 1 && x->scales != NULL;
    if (y->dtype != x->dtype) return false;
    if (is_float(x->dtype)) return true;
    /* For integers, the CPU computes roots and logarithms in f64 and truncates logarithms. */
    return kind != LOG_SUM && kind != LOG_SUM_EXP && (kind != L2 || s->machine->f64);
}

bool lg_can_reduce_group(const lg_step *s) {
    reduction r;
    return lg_can_reduce(s) && open(s, &r) && lg_lines_in_groups(s, "reduce_group", r.results, r.count);
}

static void pass_dims(lg_launch *launch, const int64_t *values) {
    for (int i = 1; i < MOST_DIMS; ++i) lg_pass_integer(launch, values[i]);
}

/* Writes the least and the largest value of an integer type. The CPU limits the root of a sum to this range. */
static void put_limits(lg_launch *launch, int dtype) {
    static const char *const limits[][2] = {
        [LINNET_I8] = {"-128.0", "127.0"},
        [LINNET_U8] = {"0.0", "255.0"},
        [LINNET_I16] = {"-32768.0", "32767.0"},
        [LINNET_U16] = {"0.0", "65535.0"},
        [LINNET_I32] = {"-2147483648.0", "2147483647.0"},
        [LINNET_U32] = {"0.0", "4294967295.0"},
        [LINNET_I64] = {"-9.2e18", "9.2e18"},
        [LINNET_U64] = {"0.0", "1.8e19"}, /* roots of 64-bit sums are far below these limits */
        [LINNET_BOOL] = {"0.0", "1.0"}};
    if (dtype < LINNET_I8 || dtype > LINNET_BOOL) return;
    lg_put(&launch->source, "#define LEAST %s\n#define MOST %s\n", limits[dtype][0], limits[dtype][1]);
}

static void build(const lg_step *s, lg_plan *plan, bool grouped) {
    reduction r;
    const linnet_device_tensor *x = &s->inputs[0];
    const int64_t kind = lg_integer(s, "kind", SUM);
    lg_launch *launch = lg_add(plan, "lg_reduce");
    if (launch == NULL || !open(s, &r)) {
        plan->failed = true;
        return;
    }
    const bool scaled = dequantizes(s), floats = is_float(x->dtype) || scaled;
    const bool adds = kind != MAX && kind != MIN && kind != PROD && kind != LOG_SUM_EXP && !is_arg(kind);
    const bool whole = scaled && (kind == SUM || kind == MEAN || kind == LOG_SUM);
    lg_define(launch, "ADDS", adds);
    lg_define(launch, "COMPARES", kind == MAX || kind == MIN);
    lg_define(launch, "MULTIPLIES", kind == PROD);
    lg_define(launch, "ADDS_EXPONENTIALS", kind == LOG_SUM_EXP);
    lg_define(launch, "FINDS", is_arg(kind));
    lg_define(launch, "FLOATS", floats);
    lg_define(launch, "SCALED", scaled);
    lg_define(launch, "X_FLOAT", is_float(x->dtype));
    lg_define(launch, "X_F64", x->dtype == LINNET_F64);
    lg_define(launch, "X_U64", x->dtype == LINNET_U64);
    lg_define(launch, "Y_BOOL", s->result.dtype == LINNET_BOOL);
    lg_define(launch, "ONE_DIM", r.n_reduced <= 1);
    lg_define(launch, "ROOTS", adds && !floats && s->machine->f64);
    if (adds && !floats) put_limits(launch, s->result.dtype);
    lg_define_operand(launch, "X", x->dtype);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, r.results);
    lg_pass_integer(launch, r.count);
    pass_dims(launch, r.kept);
    lg_pass_integer(launch, r.kept_step[0]);
    pass_dims(launch, r.kept_step);
    pass_dims(launch, r.reduced);
    lg_pass_integer(launch, r.reduced_step[0]);
    pass_dims(launch, r.reduced_step);
    lg_pass_real(launch, scaled && !whole ? (double)x->scales[0] : 1);
    lg_pass_integer(launch, scaled && x->zeros != NULL ? x->zeros[0] : 0);
    lg_pass_real(launch, whole ? (double)x->scales[0] : 1);
    lg_pass_integer(launch, kind);
    lg_pass_integer(launch, lg_integer(s, "select_last_index", 0) != 0);
    lg_range_lines(launch, s, r.results, r.count, grouped);
    lg_put_file(launch, "lines");
    lg_put_file(launch, "reduce");
}

void lg_build_reduce(const lg_step *s, lg_plan *plan) { build(s, plan, false); }
void lg_build_reduce_group(const lg_step *s, lg_plan *plan) { build(s, plan, true); }
