/* reduce.inc.c - fast sums, means, norms and extremes of floats and quantized integers, per ISA level.
 * Computes one result at a time, or 64 neighbouring results row by row; both in the order of kernel/common/lane_sum.h.
 */
#include "kernel/common/convert.h"
#include "kernel/common/index.h"
#include "kernel/step.h"
#include "ops/reduce_plan.h"
#include "fast/tail/lane_sum.inc.c"

#include <math.h>

enum { LN_REDUCE_ADD, LN_REDUCE_ADD_ABS, LN_REDUCE_ADD_SQUARE, LN_REDUCE_LARGEST, LN_REDUCE_SMALLEST };
enum { LN_REDUCE_COLUMNS = 64, LN_REDUCE_FEW = 4 };
#define LN_ALWAYS static inline __attribute__((always_inline))

/* Converts n elements to f32, from element `at` on, `stride` apart. The zero point is subtracted from integers. */
static void LN_SIMD_NAME(reduce_widen)(const ln_tensor *t, const ln_reduce_plan *plan, const char *data, int64_t at,
                                       int64_t stride, int64_t n, float *out) {
    const int32_t zero = plan->zero;
    int64_t i = 0;
    vi less = vi_set1(zero);
    const char *p = data + at * (int64_t)ln_dtype_size(t->dtype);
    const uint16_t *half = (const uint16_t *)(const void *)p;
    switch (stride == 1 ? t->dtype : 0) {
    case LINNET_F32: memcpy(out, p, (size_t)n * sizeof *out); return;
    case LINNET_F16:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store(out + i, vf_load_f16(half + i));
        break;
    case LINNET_BF16:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store(out + i, vf_load_bf16(half + i));
        break;
    case LINNET_I8:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH)
            vf_store(out + i, vf_from_vi(vi_sub(vi_load_i8((const int8_t *)p + i), less)));
        break;
    case LINNET_U8:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH)
            vf_store(out + i, vf_from_vi(vi_sub(vi_load_u8((const uint8_t *)p + i), less)));
        break;
    case LINNET_I16:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH)
            vf_store(out + i, vf_from_vi(vi_sub(vi_load_i16((const int16_t *)(const void *)p + i), less)));
        break;
    default: break;
    }
    for (; i < n && t->dtype == LINNET_F32; i++) out[i] = ((const float *)(const void *)p)[i * stride];
    bool is_float = ln_dtype_is_float(t->dtype);
    for (; i < n; i++)
        out[i] = is_float ? (float)ln_load_f64(data, t->dtype, at + i * stride)
                          : (float)(ln_load_i64(data, t->dtype, at + i * stride) - zero);
    for (i = 0; i < n && plan->factor != 1; i++) out[i] *= plan->factor;
}

/* Adds x to acc, or takes the extreme of both. In extremes, NaN replaces any number and is kept. */
LN_ALWAYS vf LN_SIMD_NAME(reduce_step)(vf acc, vf x, const int how) {
    if (how == LN_REDUCE_ADD) return vf_add(acc, x);
    if (how == LN_REDUCE_ADD_ABS) return vf_add(acc, vf_abs(x));
    if (how == LN_REDUCE_ADD_SQUARE) return vf_add(acc, vf_mul(x, x));
    vm better = how == LN_REDUCE_LARGEST ? vf_gt(x, acc) : vf_lt(x, acc);
    return vf_select(vm_or(better, vm_not(vf_eq(x, x))), x, acc);
}

/* Reduces one block of at most LN_LANE_BLOCK elements with 16 lanes. The last group may be in `tail`. */
LN_ALWAYS float LN_SIMD_NAME(reduce_block)(const float *x, int64_t n, const float *tail, float start, const int how) {
    vf acc[LN_LANE_VECTORS];
    float lanes[LN_LANES];
    LN_SIMD_UNROLL
    for (int k = 0; k < LN_LANE_VECTORS; k++) acc[k] = vf_set1(start);
    for (int64_t i = 0; i < n; i += LN_LANES) {
        const float *group = i + LN_LANES <= n ? x + i : tail;
        LN_SIMD_UNROLL
        for (int k = 0; k < LN_LANE_VECTORS; k++)
            acc[k] = LN_SIMD_NAME(reduce_step)(acc[k], vf_load(group + k * VF_WIDTH), how);
    }
    if (how < LN_REDUCE_LARGEST) return lane_tree(acc);
    LN_SIMD_UNROLL
    for (int k = 0; k < LN_LANE_VECTORS; k++) vf_store(lanes + k * VF_WIDTH, acc[k]);
    return ln_lanes_extreme(lanes, how == LN_REDUCE_LARGEST);
}

/* Adds rows to the lanes in turn, beginning with lane `turn`. Rows are `stride` elements apart and have `vectors`
   vectors. */
LN_ALWAYS void LN_SIMD_NAME(reduce_rows_as)(float (*lanes)[LN_REDUCE_COLUMNS], int64_t turn, const float *x,
                                            int64_t rows, int64_t stride, int vectors, const int how) {
    for (int64_t r = 0; r < rows; r++, x += stride) {
        float *lane = lanes[(turn + r) & (LN_LANES - 1)]; /* & instead of %, because -Oz would divide */
        for (int k = 0; k < vectors; k++) {
            vf v = LN_SIMD_NAME(reduce_step)(vf_load(lane + k * VF_WIDTH), vf_load(x + k * VF_WIDTH), how);
            vf_store(lane + k * VF_WIDTH, v);
        }
    }
}

static float LN_SIMD_NAME(reduce_values)(const float *x, int64_t n, float start, int how) {
    float tail[LN_LANES];
    int rest = (int)(n & (LN_LANES - 1));
    if (rest != 0) lane_tail(x + n - rest, rest, start, tail);
    switch (how) {
    case LN_REDUCE_ADD: return LN_SIMD_NAME(reduce_block)(x, n, tail, start, LN_REDUCE_ADD);
    case LN_REDUCE_ADD_ABS: return LN_SIMD_NAME(reduce_block)(x, n, tail, start, LN_REDUCE_ADD_ABS);
    case LN_REDUCE_ADD_SQUARE: return LN_SIMD_NAME(reduce_block)(x, n, tail, start, LN_REDUCE_ADD_SQUARE);
    case LN_REDUCE_LARGEST: return LN_SIMD_NAME(reduce_block)(x, n, tail, start, LN_REDUCE_LARGEST);
    default: return LN_SIMD_NAME(reduce_block)(x, n, tail, start, LN_REDUCE_SMALLEST);
    }
}

static void LN_SIMD_NAME(reduce_rows)(float (*lanes)[LN_REDUCE_COLUMNS], int64_t turn, const float *x, int64_t rows,
                                      int64_t stride, int vectors, int how) {
#define LN_ROWS_AS(how)                                                                                                \
    if (vectors == LN_REDUCE_COLUMNS / VF_WIDTH)                                                                       \
        LN_SIMD_NAME(reduce_rows_as)(lanes, turn, x, rows, stride, LN_REDUCE_COLUMNS / VF_WIDTH, how);                 \
    else                                                                                                               \
        LN_SIMD_NAME(reduce_rows_as)(lanes, turn, x, rows, stride, vectors, how);                                      \
    break;
    switch (how) {
    case LN_REDUCE_ADD: LN_ROWS_AS(LN_REDUCE_ADD)
    case LN_REDUCE_ADD_ABS: LN_ROWS_AS(LN_REDUCE_ADD_ABS)
    case LN_REDUCE_ADD_SQUARE: LN_ROWS_AS(LN_REDUCE_ADD_SQUARE)
    case LN_REDUCE_LARGEST: LN_ROWS_AS(LN_REDUCE_LARGEST)
    default: LN_ROWS_AS(LN_REDUCE_SMALLEST)
    }
#undef LN_ROWS_AS
}

/* Advances the coordinates of the `dims` outermost reduced dims like an odometer. */
static int64_t LN_SIMD_NAME(reduce_next)(const ln_reduce_plan *p, int dims, int64_t *at, int64_t offset) {
    for (int d = dims - 1; d >= 0; d--) {
        offset += p->reduced_x[d];
        if (++at[d] < p->reduced_dims[d]) break;
        offset -= p->reduced_dims[d] * p->reduced_x[d];
        at[d] = 0;
    }
    return offset;
}

static double LN_SIMD_NAME(reduce_fold)(double total, float block, int how) {
    return how < LN_REDUCE_LARGEST ? total + (double)block
                                   : (double)ln_extreme((float)total, block, how == LN_REDUCE_LARGEST);
}

/* Reduces p->count elements from x_at on. */
static double LN_SIMD_NAME(reduce_one)(const ln_call *call, const ln_reduce_plan *p, const char *x, int64_t x_at,
                                       int how, float start) {
    const ln_tensor *t = &call->inputs[0];
    float buffer[LN_LANE_BLOCK];
    int last = p->reduced - 1;
    int64_t at[LN_MAX_RANK] = {0}, offset = x_at, left = p->reduced_dims[last], step = p->reduced_x[last];
    bool in_place = t->dtype == LINNET_F32 && last == 0 && step == 1;
    double total = (double)start;
    for (int64_t done = 0; done < p->count; done += LN_LANE_BLOCK) {
        int64_t n = ln_min(LN_LANE_BLOCK, p->count - done);
        const float *values = buffer;
        if (in_place) values = (const float *)(const void *)x + x_at + done;
        for (int64_t filled = 0; filled < n && !in_place;) {
            int64_t run = ln_min(n - filled, left);
            LN_SIMD_NAME(reduce_widen)
            (t, p, x, offset + (p->reduced_dims[last] - left) * step, step, run, buffer + filled);
            filled += run;
            left -= run;
            if (left == 0) {
                left = p->reduced_dims[last];
                offset = LN_SIMD_NAME(reduce_next)(p, last, at, offset);
            }
        }
        total = LN_SIMD_NAME(reduce_fold)(total, LN_SIMD_NAME(reduce_values)(values, n, start, how), how);
    }
    return total;
}

static void LN_SIMD_NAME(reduce_finish)(const ln_call *call, const ln_reduce_plan *p, const ln_buffers *b, int64_t at,
                                        double v) {
    const ln_reduce_attributes *a = call->attributes;
    const int dtype = call->outputs[0].dtype;
    if (p->stored)
        ln_store_i64(b->outputs[0], dtype, at, (int64_t)v);
    else
        ln_store_float(b->outputs[0], dtype, at, ln_reduce_result(a->kind, v, p->scale, p->count));
}

/* Sums rows of fewer bytes than a vector has lanes. Adjacent rows are read as vectors if a vector holds whole rows. */
static void LN_SIMD_NAME(reduce_few_bytes)(const ln_reduce_plan *p, bool u8, const char *x, int64_t x_at, int64_t width,
                                           int32_t *sums) {
    int64_t at[LN_MAX_RANK] = {0}, offset = x_at, last = p->reduced - 1, rows = p->reduced_dims[last];
    const bool together = p->reduced_x[last] == width && VF_WIDTH % width == 0;
    const int64_t vectors = together ? rows * width / VF_WIDTH : 0;
    vi acc = vi_zero();
    for (int64_t done = 0; done < p->count; done += rows) {
        const char *row = x + offset;
        for (int64_t k = 0; k < vectors; k++, row += VF_WIDTH)
            acc = vi_add(acc, u8 ? vi_load_u8((const uint8_t *)row) : vi_load_i8((const int8_t *)row));
        for (int64_t r = vectors * VF_WIDTH / width; r < rows; r++, row += p->reduced_x[last])
            for (int64_t i = 0; i < width; i++) sums[i] += u8 ? (uint8_t)row[i] : (int8_t)row[i];
        offset = LN_SIMD_NAME(reduce_next)(p, (int)last, at, offset);
    }
    int32_t lanes[VF_WIDTH];
    vi_store(lanes, acc);
    for (int64_t i = 0, c = 0; i < VF_WIDTH && together; i++, c = c + 1 < width ? c + 1 : 0) sums[c] += lanes[i];
}

/* Sums columns [x_at, x_at + width) of i8 or u8 in 32 bits. The order does not matter, because sums of so few numbers
 * below 2^9 are exact in f32, too. */
static void LN_SIMD_NAME(reduce_bytes)(const ln_reduce_plan *p, bool u8, const char *x, int64_t x_at, int64_t width,
                                       double *totals) {
    int32_t sums[LN_REDUCE_COLUMNS + VF_WIDTH] = {0};
    /* The last vector begins early, so it also reads columns of the vector before. */
    const int64_t whole = width / VF_WIDTH * VF_WIDTH, over = width == whole ? 0 : VF_WIDTH - (width - whole);
    const bool few = p->inner < VF_WIDTH;
    if (few) LN_SIMD_NAME(reduce_few_bytes)(p, u8, x, x_at, width, sums);
    for (int64_t c = few ? width : 0, blocks; c < width; c += blocks * VF_WIDTH) {
        blocks = c < whole ? ln_min(4, (whole - c) / VF_WIDTH) : 1;
        int64_t at[LN_MAX_RANK] = {0}, offset = x_at + c - (c < whole ? 0 : over), last = p->reduced - 1;
        vi acc[4] = {vi_zero(), vi_zero(), vi_zero(), vi_zero()};
        for (int64_t done = 0; done < p->count; done += p->reduced_dims[last]) {
            const char *row = x + offset;
            for (int64_t r = 0; r < p->reduced_dims[last]; r++, row += p->reduced_x[last]) {
                LN_SIMD_UNROLL
                for (int k = 0; k < 4; k++) {
                    if (k >= blocks) break;
                    acc[k] = vi_add(acc[k], u8 ? vi_load_u8((const uint8_t *)row + k * VF_WIDTH)
                                               : vi_load_i8((const int8_t *)row + k * VF_WIDTH));
                }
            }
            offset = LN_SIMD_NAME(reduce_next)(p, (int)last, at, offset);
        }
        for (int k = 0; k < blocks; k++) vi_store(sums + c + k * VF_WIDTH, acc[k]);
    }
    for (int64_t i = few ? width : whole; i < width; i++) sums[i] = sums[i + over];
    for (int64_t i = 0; i < width; i++) totals[i] = (double)(sums[i] - (int32_t)p->count * p->zero);
}

/* Sums a few rows of floats. It adds the same lanes in the same order as the general code. The general code computes
 * the mean or the root in double and rounds it to f32, which gives the same result as a single operation in f32. */
LN_ALWAYS void LN_SIMD_NAME(reduce_few_rows_as)(const ln_reduce_plan *p, int64_t kind, const float *x, float *y,
                                                int64_t width, const int how) {
    const vf zero = vf_set1(0), count = vf_set1((float)p->count);
    for (int64_t i = 0; i < width; i += VF_WIDTH) {
        if (i + VF_WIDTH > width) i = width - VF_WIDTH;
        vf v[LN_REDUCE_FEW] = {zero, zero, zero, zero};
        for (int64_t k = 0; k < p->count; k++)
            v[k] = LN_SIMD_NAME(reduce_step)(zero, vf_load(x + k * p->reduced_x[0] + i), how);
        vf sum = vf_add(vf_add(v[0], v[2]), vf_add(v[1], v[3]));
        if (kind == LN_REDUCE_KIND_MEAN) sum = vf_div(sum, count);
        if (kind == LN_REDUCE_KIND_L2) sum = vf_sqrt(sum);
        vf_store(y + i, sum);
    }
}

static bool LN_SIMD_NAME(reduce_few_rows)(const ln_call *call, const ln_reduce_plan *p, const ln_buffers *b,
                                          int64_t x_at, int64_t y_at, int64_t width, int how) {
    if (how >= LN_REDUCE_LARGEST || p->count > LN_REDUCE_FEW || p->reduced != 1 || p->inner_y != 1 ||
        width < VF_WIDTH || call->inputs[0].dtype != LINNET_F32 || call->outputs[0].dtype != LINNET_F32)
        return false;
    const int64_t kind = ((const ln_reduce_attributes *)call->attributes)->kind;
    const float *x = (const float *)b->inputs[0] + x_at;
    float *y = (float *)b->outputs[0] + y_at;
    if (how == LN_REDUCE_ADD_SQUARE)
        LN_SIMD_NAME(reduce_few_rows_as)(p, kind, x, y, width, LN_REDUCE_ADD_SQUARE);
    else
        LN_SIMD_NAME(reduce_few_rows_as)(p, kind, x, y, width, how);
    return true;
}

/* Computes the reductions of `width` neighbouring results. Each result has its own 16 lanes, and a row is added to the
   same lane of every result. */
static void LN_SIMD_NAME(reduce_columns)(const ln_call *call, const ln_reduce_plan *p, const ln_buffers *b,
                                         int64_t x_at, int64_t y_at, int64_t width, int how, float start) {
    if (LN_SIMD_NAME(reduce_few_rows)(call, p, b, x_at, y_at, width, how)) return;
    const ln_tensor *t = &call->inputs[0];
    const char *x = b->inputs[0];
    float lanes[LN_LANES][LN_REDUCE_COLUMNS], buffer[LN_REDUCE_COLUMNS] = {0};
    double totals[LN_REDUCE_COLUMNS];
    int vectors = (int)ln_ceil_div(width, VF_WIDTH);
    bool in_place = t->dtype == LINNET_F32 && width % VF_WIDTH == 0;
    int64_t at[LN_MAX_RANK] = {0}, offset = x_at;
    const bool bytes = (t->dtype == LINNET_I8 || t->dtype == LINNET_U8) && how == LN_REDUCE_ADD && p->count <= 16384 &&
                       p->zero >= INT8_MIN && p->zero <= UINT8_MAX && p->reduced > 0;
    if (bytes) LN_SIMD_NAME(reduce_bytes)(p, t->dtype == LINNET_U8, x, x_at, width, totals);
    for (int64_t i = 0; i < width && !bytes; i++) totals[i] = (double)start;
    for (int64_t done = bytes ? p->count : 0; done < p->count;) {
        int64_t stop = ln_min(p->count, done + LN_LANE_BLOCK);
        for (int l = 0; l < LN_LANES; l++)
            for (int i = 0; i < vectors; i++) vf_store(lanes[l] + i * VF_WIDTH, vf_set1(start));
        while (done < stop) {
            const float *row = (const float *)(const void *)x + offset;
            int last = p->reduced - 1;
            int64_t rows = in_place ? ln_min(stop - done, p->reduced_dims[last] - at[last]) : 1;
            if (!in_place) {
                LN_SIMD_NAME(reduce_widen)(t, p, x, offset, 1, width, buffer);
                row = buffer;
            }
            LN_SIMD_NAME(reduce_rows)(lanes, done & (LN_LANES - 1), row, rows, p->reduced_x[last], vectors, how);
            done += rows;
            at[last] += rows - 1;
            offset = LN_SIMD_NAME(reduce_next)(p, p->reduced, at, offset + (rows - 1) * p->reduced_x[last]);
        }
        for (int half = LN_LANES / 2; half > 0; half /= 2) LN_SIMD_NAME(reduce_rows)
        (lanes, 0, lanes[half], half, LN_REDUCE_COLUMNS, vectors, how < LN_REDUCE_LARGEST ? LN_REDUCE_ADD : how);
        for (int64_t i = 0; i < width; i++) totals[i] = LN_SIMD_NAME(reduce_fold)(totals[i], lanes[0][i], how);
    }
    for (int64_t i = 0; i < width; i++) LN_SIMD_NAME(reduce_finish)(call, p, b, y_at + i * p->inner_y, totals[i]);
}

/* Reduces groups of a few adjacent floats, such as the real and the imaginary part of a number, in the same order as
 * the general code. There are `results` groups, which are x_step elements apart. Their results are y_step elements
 * apart. */
LN_ALWAYS void LN_SIMD_NAME(reduce_few_as)(const ln_reduce_plan *p, int64_t kind, const float *x, int64_t x_step,
                                           float *y, int64_t y_step, int64_t results, const int how) {
    for (int64_t i = 0; i < results; i++, x += x_step, y += y_step) {
        float v[LN_REDUCE_FEW] = {0};
        for (int64_t k = 0; k < p->count; k++)
            v[k] = how == LN_REDUCE_ADD ? x[k] : how == LN_REDUCE_ADD_ABS ? fabsf(x[k]) : x[k] * x[k];
        *y = (float)ln_reduce_result(kind, 0.0 + (double)((v[0] + v[2]) + (v[1] + v[3])), p->scale, p->count);
    }
}

static bool LN_SIMD_NAME(reduce_is_few)(const ln_call *call, const ln_reduce_plan *p, int how) {
    return how < LN_REDUCE_LARGEST && !p->columns && p->count <= LN_REDUCE_FEW && p->reduced == 1 &&
           p->reduced_x[0] == 1 && p->kept > 0 && call->inputs[0].dtype == LINNET_F32 &&
           call->outputs[0].dtype == LINNET_F32;
}

static void LN_SIMD_NAME(reduce_few)(const ln_call *call, const ln_reduce_plan *p, const ln_buffers *b, int64_t begin,
                                     int64_t end, int how) {
    const int64_t kind = ((const ln_reduce_attributes *)call->attributes)->kind;
    const int last = p->kept - 1;
    for (int64_t n; begin < end; begin += n) {
        int64_t rest = begin / p->kept_dims[last], at = begin % p->kept_dims[last];
        int64_t x_at = at * p->kept_x[last], y_at = at * p->kept_y[last];
        n = ln_min(end - begin, p->kept_dims[last] - at);
        for (int d = last - 1; d >= 0; d--) {
            x_at += rest % p->kept_dims[d] * p->kept_x[d], y_at += rest % p->kept_dims[d] * p->kept_y[d];
            rest /= p->kept_dims[d];
        }
        const float *x = (const float *)b->inputs[0] + x_at;
        float *y = (float *)b->outputs[0] + y_at;
        if (how == LN_REDUCE_ADD_SQUARE)
            LN_SIMD_NAME(reduce_few_as)(p, kind, x, p->kept_x[last], y, p->kept_y[last], n, LN_REDUCE_ADD_SQUARE);
        else
            LN_SIMD_NAME(reduce_few_as)(p, kind, x, p->kept_x[last], y, p->kept_y[last], n, how);
    }
}

#include "fast/tail/reduce_i32.inc.c"

static linnet_status LN_SIMD_NAME(reduce_work)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin,
                                               int64_t end, int thread) {
    (void)phase;
    (void)thread;
    const ln_reduce_plan *p = call->state;
    int64_t kind = ((const ln_reduce_attributes *)call->attributes)->kind;
    int how = kind == LN_REDUCE_KIND_MAX                                       ? LN_REDUCE_LARGEST
              : kind == LN_REDUCE_KIND_MIN                                     ? LN_REDUCE_SMALLEST
              : kind == LN_REDUCE_KIND_L1                                      ? LN_REDUCE_ADD_ABS
              : kind == LN_REDUCE_KIND_L2 || kind == LN_REDUCE_KIND_SUM_SQUARE ? LN_REDUCE_ADD_SQUARE
                                                                               : LN_REDUCE_ADD;
    float start = how == LN_REDUCE_LARGEST ? -INFINITY : how == LN_REDUCE_SMALLEST ? INFINITY : 0.0f;
    if (LN_SIMD_NAME(reduce_is_few)(call, p, how)) {
        LN_SIMD_NAME(reduce_few)(call, p, b, begin, end, how);
        return LINNET_OK;
    }
    for (int64_t item = begin; item < end; item++) {
        int64_t rest = item / p->blocks, first = item % p->blocks * p->block, x_at = 0, y_at = 0;
        for (int d = p->kept - 1; d >= 0; d--) {
            int64_t c = rest % p->kept_dims[d];
            rest /= p->kept_dims[d];
            x_at += c * p->kept_x[d];
            y_at += c * p->kept_y[d];
        }
        const int64_t width = p->columns ? ln_min(p->block, p->inner - first) : 1;
        if (call->inputs[0].dtype == LINNET_I32) LN_SIMD_NAME(reduce_i32)
        (p, (const int32_t *)b->inputs[0] + x_at + first, width, (int32_t *)b->outputs[0] + y_at + first * p->inner_y);
        else if (p->columns)
            LN_SIMD_NAME(reduce_columns)(call, p, b, x_at + first, y_at + first * p->inner_y, width, how, start);
        else LN_SIMD_NAME(reduce_finish)(call, p, b, y_at,
                                         LN_SIMD_NAME(reduce_one)(call, p, b->inputs[0], x_at, how, start));
    }
    return LINNET_OK;
}

static LN_PLANNING bool LN_SIMD_NAME(reduce_can)(const ln_call *call) {
    ln_reduce_plan plan;
    return ln_reduce_make_plan(call, &plan);
}

static LN_PLANNING linnet_status LN_SIMD_NAME(reduce_configure)(ln_call *call) {
    ln_reduce_plan *p = ln_call_state(call, sizeof *p);
    if (!p) return LINNET_OUT_OF_MEMORY;
    ln_reduce_make_plan(call, p);
    call->state = p;
    call->work[0] = p->blocks;
    for (int d = 0; d < p->kept; d++) call->work[0] *= p->kept_dims[d];
    call->grain = ln_max(1, 16384 / ln_max(1, ln_count(&call->inputs[0]) / ln_max(1, call->work[0])));
    return LINNET_OK;
}

const ln_kernel_code LN_SIMD_NAME(ln_reduce_simd) = {
    .can = LN_SIMD_NAME(reduce_can), .configure = LN_SIMD_NAME(reduce_configure), .run = LN_SIMD_NAME(reduce_work)};
