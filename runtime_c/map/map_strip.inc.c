/* map_strip.inc.c - the strip interpreter of `map`, compiled once per ISA. It has the loads and stores, which convert
 * between dtypes, and the kernels. The arithmetic is in map.inc.c. */
#include "map/map_convert.h"
#include "map/map_kernel.h"
#include "map/map_program.h"
#include "map/map_rest.h"
#include "map/map_shape.h"

/* ---- traversing a view ---- */

/* Returns the offset of element `start` of the view, and stores its coordinates in `at`. */
static inline int64_t LN_SIMD_NAME(seek)(const ln_map_view *v, int64_t start, int64_t *at) {
    int64_t offset = 0;
    for (int d = v->rank - 1; d > 0; d--) {
        int64_t next = start / v->dims[d];
        at[d] = start - next * v->dims[d];
        offset += at[d] * v->strides[d];
        start = next;
    }
    at[0] = start;
    return offset + start * v->strides[0];
}

/* Moves to the next row, over all dims except the last. Returns the offset of the new row's first element. */
static inline int64_t LN_SIMD_NAME(next_row)(const ln_map_view *v, int64_t row_offset, int64_t *at) {
    for (int d = v->rank - 2; d >= 0; d--) {
        row_offset += v->strides[d];
        if (d == 0 || ++at[d] < v->dims[d]) break;
        row_offset -= v->dims[d] * v->strides[d];
        at[d] = 0;
    }
    return row_offset;
}

/* ---- loads ---- */

/* Writes n numbers that begin with `first` and increase by `stride` (0 or 1). */
static void LN_SIMD_NAME(map_count)(int type, int64_t first, int64_t stride, int n, void *y) {
    int32_t from = (int32_t)first, step = (int32_t)stride;
    bool small = first + n <= INT32_MAX;
    if (small && type == LINNET_F32)
        LN_LOOP for (int i = 0; i < n; i++)((float *)y)[i] = (float)(from + i * step);
    else if (small && type == LINNET_I32)
        LN_LOOP for (int i = 0; i < n; i++)((int32_t *)y)[i] = from + i * step;
    else
        for (int i = 0; i < n; i++) {
            int64_t value = first + i * stride;
            ln_map_load_any(LINNET_I64, type, &value, 0, 0, 1, (char *)y + i * (int64_t)ln_dtype_size(type));
        }
}

/* Converts contiguous small integers to i32. */
static void LN_SIMD_NAME(widen)(int dtype, const char *p, int n, int32_t *y) {
    const uint16_t *half = (const uint16_t *)(const void *)p;
    int i = 0;
#define LN_WIDEN(name, ctype)                                                                                          \
    for (; i + VF_WIDTH <= n; i += VF_WIDTH) vi_store(y + i, name((const ctype *)(const void *)p + i));                \
    for (; i < n; i++) y[i] = ((const ctype *)(const void *)p)[i];                                                     \
    return;
    switch (dtype) {
    case LINNET_I8: LN_WIDEN(vi_load_i8, int8_t)
    case LINNET_BOOL:
    case LINNET_U8: LN_WIDEN(vi_load_u8, uint8_t)
    case LINNET_I16: LN_WIDEN(vi_load_i16, int16_t)
    case LINNET_U16: LN_WIDEN(vi_load_u16, uint16_t)
    case LINNET_I32: memcpy(y, p, (size_t)n * sizeof *y); return;
    case LINNET_F16:
        for (; i < n; i += VF_WIDTH)
            if (i + VF_WIDTH <= n)
                vi_store(y + i, vf_as_vi(vf_load_f16(half + i)));
            else
                vi_store_partial(y + i, n - i, vf_as_vi(vf_load_f16_partial(half + i, n - i)));
        return;
    default:
        for (; i < n; i += VF_WIDTH)
            if (i + VF_WIDTH <= n)
                vi_store(y + i, vf_as_vi(vf_load_bf16(half + i)));
            else
                vi_store_partial(y + i, n - i, vf_as_vi(vf_load_bf16_partial(half + i, n - i)));
        return;
    }
#undef LN_WIDEN
}

/* Loads n elements from p[0], p[stride], ... as the register type; all elements are in one row of an operand. */
static void LN_SIMD_NAME(load_run)(const ln_map_step *s, int dtype, const char *p, int64_t stride, int n, void *y) {
    int i = 0;
    bool quantized = s->code == LN_MAP_LOAD_DEQUANTIZED;
    bool small = ln_is_byte(dtype) || dtype == LINNET_BOOL || dtype == LINNET_I16 || dtype == LINNET_U16;
    float *f = y, scale = quantized ? s->scale : 1.0f;
    int32_t *w = y, zero = quantized ? s->zero : 0;
    if (quantized && (stride != 1 || !small)) {
        for (; i < n; i++) f[i] = (float)(int32_t)(ln_load_i64(p, dtype, i * stride) - zero) * scale;
        return;
    }
    if (stride == 0 && n > 1) {
        ln_map_load_any(dtype, s->type, p, 0, 0, 1, y);
        if (ln_dtype_size(s->type) == 4) {
            vi all = vi_set1(*w);
            for (; i + VF_WIDTH <= n; i += VF_WIDTH) vi_store(w + i, all);
            if (i < n) vi_store_partial(w + i, n - i, all);
        } else {
            int64_t *l = y;
            for (i = 1; i < n; i++) l[i] = l[0];
        }
        return;
    }
    if (stride == 1 && dtype == s->type) {
        memcpy(y, p, (size_t)n * ln_dtype_size(dtype));
        return;
    }
    bool half = dtype == LINNET_F16 || dtype == LINNET_BF16;
    if (stride == 1 &&
        ((s->type == LINNET_F32 && (small || half || dtype == LINNET_I32)) || (s->type == LINNET_I32 && small))) {
        LN_SIMD_NAME(widen)(dtype, p, n, w);
        if (s->type == LINNET_I32 || half) return;
        vi less = vi_set1(zero);
        vf factor = vf_set1(scale);
        for (; i + VF_WIDTH <= n; i += VF_WIDTH)
            vf_store(f + i, vf_mul(vf_from_vi(vi_sub(vi_load(w + i), less)), factor));
        for (; i < n; i++) f[i] = (float)(w[i] - zero) * scale;
        return;
    }
    if (dtype == s->type && ln_dtype_size(dtype) == 4) {
        for (; i < n; i++) memcpy(w + i, p + i * stride * 4, 4);
        return;
    }
    ln_map_load_any(dtype, s->type, p, 0, stride, n, y);
}

static void LN_SIMD_NAME(map_load)(const ln_map_step *s, const ln_map_view *v, const char *base, int64_t start, int n,
                                   char *y) {
    int64_t at[LN_MAX_RANK], offset = LN_SIMD_NAME(seek)(v, start, at), stride = v->strides[v->rank - 1];
    int64_t size = (int64_t)ln_dtype_size(v->dtype), width = (int64_t)ln_dtype_size(s->type);
    int done = 0;
    while (done < n) {
        int64_t left = v->rank == 1 ? n : v->dims[v->rank - 1] - at[v->rank - 1];
        int run = (int)ln_min(left, n - done);
        if (v->iota) {
            LN_SIMD_NAME(map_count)(s->type, offset, stride, run, y + done * width);
        } else {
            LN_SIMD_NAME(load_run)(s, v->dtype, base + offset * size, stride, run, y + done * width);
        }
        done += run;
        if (done < n) {
            offset = LN_SIMD_NAME(next_row)(v, offset - at[v->rank - 1] * stride, at);
            at[v->rank - 1] = 0;
        }
    }
    int whole = (n + 15) & ~15;
    if (whole > n) memset(y + n * width, 0, (size_t)((whole - n) * width));
}

static void LN_SIMD_NAME(map_table)(const ln_map_step *s, const ln_map_view *v, const char *base, int n,
                                    const int32_t *a, void *y) {
    int64_t last = v->dims[0] - 1, stride = v->strides[0];
    bool same = v->dtype == s->type && ln_dtype_size(s->type) == 4;
    for (int i = 0; i < n && same; i++) memcpy((int32_t *)y + i, base + ln_min(ln_max(a[i], 0), last) * stride * 4, 4);
    for (int i = 0; i < n && !same; i++)
        ln_map_load_any(v->dtype, s->type, base, ln_min(ln_max(a[i], 0), last) * stride, 0, 1,
                        (char *)y + i * (int64_t)ln_dtype_size(s->type));
}

/* ---- stores ---- */

/* Stores integers as contiguous narrower integers (truncated) or as bool. */
static void LN_SIMD_NAME(map_narrow)(int dtype, const int32_t *w, int n, void *y) {
    if (dtype == LINNET_BOOL)
        LN_LOOP for (int i = 0; i < n; i++)((uint8_t *)y)[i] = w[i] != 0;
    else if (dtype == LINNET_I8 || dtype == LINNET_U8)
        LN_LOOP for (int i = 0; i < n; i++)((uint8_t *)y)[i] = (uint8_t)w[i];
    else
        LN_LOOP for (int i = 0; i < n; i++)((uint16_t *)y)[i] = (uint16_t)w[i];
}

/* Converts a float to an integer, without adding the zero point. */
static ALWAYS_INLINE vi LN_SIMD_NAME(rounded)(const int how, vf v, vf scale, vf inverse, vf least, vf most) {
    if (how == LN_MAP_NEAREST) {
#ifdef VF_FMA_DIVIDES
#if defined(LN_SIMD_NEON)
        v = vminq_f32(vf_max(v, least), most); /* NaN becomes the minimum */
#else
        v = vf_min(vf_max(v, least), most);
#endif
        /* Processors divide slowly, so this code multiplies by the inverse and corrects the result (Markstein, 1990).
           The product is less than 1.5 units in the last place away from the quotient, because the inverse is rounded
           to nearest. One correction then gives the rounded quotient. For significands of 6 to 15 bits, all pairs
           were tried. */
        const vf q = vf_mul(v, inverse), minus = vf_neg(scale);
        return vi_from_vf(vf_fma(vf_fma(q, minus, v), inverse, q));
#else
        v = vf_min(vf_max(v, least), most); /* NaN becomes the minimum */
        return vi_from_vf(vf_div(v, scale));
#endif
    }
    if (how == LN_MAP_CUT) return vi_trunc_vf(vf_min(vf_max(vf_select(vf_eq(v, v), v, vf_zero()), least), most));
    v = how == LN_MAP_PRODUCT ? vf_mul(v, inverse) : vf_div(v, scale);
    return vi_from_vf(vf_min(vf_max(v, least), most));
}

static ALWAYS_INLINE void LN_SIMD_NAME(store_all)(const int how, const ln_map_step *s, int dtype, const float *a, int n,
                                                  char *p) {
    vf scale = vf_set1(s->scale), inverse = vf_set1(s->inverse), least = vf_set1(s->least), most = vf_set1(s->most);
    vi zero = vi_set1(s->zero);
    size_t size = dtype == LINNET_I8 || dtype == LINNET_U8 ? 1 : 2;
    for (int i = 0; i < n; i += VF_WIDTH) {
        int left = n - i;
        vf v = left >= VF_WIDTH ? vf_load(a + i) : vf_load_partial(a + i, left);
        vi q = vi_add(LN_SIMD_NAME(rounded)(how, v, scale, inverse, least, most), zero);
        uint16_t lanes[VF_WIDTH];
        void *to = left >= VF_WIDTH ? (void *)(p + (size_t)i * size) : (void *)lanes;
        switch (dtype) {
        case LINNET_I8: vi_store_i8(to, q); break;
        case LINNET_U8: vi_store_u8(to, q); break;
        case LINNET_I16: vi_store_i16(to, q); break;
        default: vi_store_u16(to, q); break;
        }
        if (left < VF_WIDTH) memcpy(p + (size_t)i * size, lanes, (size_t)left * size);
    }
}

/* Stores n floats as contiguous small integers. */
static void LN_SIMD_NAME(map_store_small)(const ln_map_step *s, int dtype, const float *a, int n, char *p) {
    switch (s->how) {
    case LN_MAP_NEAREST: LN_SIMD_NAME(store_all)(LN_MAP_NEAREST, s, dtype, a, n, p); return;
    case LN_MAP_PRODUCT: LN_SIMD_NAME(store_all)(LN_MAP_PRODUCT, s, dtype, a, n, p); return;
    case LN_MAP_QUOTIENT: LN_SIMD_NAME(store_all)(LN_MAP_QUOTIENT, s, dtype, a, n, p); return;
    default: LN_SIMD_NAME(store_all)(LN_MAP_CUT, s, dtype, a, n, p); return;
    }
}

/* A step that makes map_store_small convert floats to bytes without quantization. */
static const ln_map_step *LN_SIMD_NAME(cut)(int dtype) {
    static const ln_map_step cut_i8 = {.how = LN_MAP_CUT, .least = INT8_MIN, .most = INT8_MAX};
    static const ln_map_step cut_u8 = {.how = LN_MAP_CUT, .least = 0, .most = UINT8_MAX};
    return dtype == LINNET_I8 ? &cut_i8 : &cut_u8;
}

static void LN_SIMD_NAME(store_run)(const ln_map_step *s, int dtype, const char *a, int n, char *p, int64_t stride) {
    int i = 0;
    size_t size = ln_dtype_size(dtype);
    const float *f = (const float *)(const void *)a;
    const int32_t *w = (const int32_t *)(const void *)a;
    if (s->code == LN_MAP_STORE_QUANTIZED) {
        if (stride == 1) {
            LN_SIMD_NAME(map_store_small)(s, dtype, f, n, p);
            return;
        }
        for (; i < n; i++) LN_SIMD_NAME(map_store_small)(s, dtype, f + i, 1, p + i * stride * (int64_t)size);
        return;
    }
    if (stride == 1 && dtype == s->type) {
        memcpy(p, a, (size_t)n * size);
        return;
    }
    uint16_t *half = (uint16_t *)(void *)p;
    switch (stride == 1 ? s->type * 16 + dtype : 0) {
    case LINNET_F32 * 16 + LINNET_F16:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store_f16(half + i, vf_load(f + i));
        if (i < n) vf_store_f16_partial(half + i, n - i, vf_load_partial(f + i, n - i));
        return;
    case LINNET_F32 * 16 + LINNET_BF16:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store_bf16(half + i, vf_load(f + i));
        if (i < n) vf_store_bf16_partial(half + i, n - i, vf_load_partial(f + i, n - i));
        return;
    case LINNET_F32 * 16 + LINNET_I8:
    case LINNET_F32 * 16 + LINNET_U8: LN_SIMD_NAME(map_store_small)(LN_SIMD_NAME(cut)(dtype), dtype, f, n, p); return;
    case LINNET_I32 * 16 + LINNET_I8:
    case LINNET_I32 * 16 + LINNET_U8:
    case LINNET_I32 * 16 + LINNET_BOOL:
    case LINNET_I32 * 16 + LINNET_I16:
    case LINNET_I32 * 16 + LINNET_U16: LN_SIMD_NAME(map_narrow)(dtype, w, n, p); return;
    case LINNET_I32 * 16 + LINNET_F32:
        for (; i + VF_WIDTH <= n; i += VF_WIDTH) vf_store((float *)(void *)p + i, vf_from_vi(vi_load(w + i)));
        for (; i < n; i++) ((float *)(void *)p)[i] = (float)w[i];
        return;
    default: ln_map_store_any(dtype, s->type, a, n, p, 0, stride); return;
    }
}

static void LN_SIMD_NAME(store_floats)(int dtype, const float *x, int n, void *y) {
    static const ln_map_step step = {.code = LN_MAP_STORE, .type = LINNET_F32};
    LN_SIMD_NAME(store_run)(&step, dtype, (const char *)(const void *)x, n, y, 1);
}

static void LN_SIMD_NAME(store)(const ln_map_step *s, const ln_map_view *v, char *base, int64_t start, int n,
                                const char *a) {
    int64_t at[LN_MAX_RANK], offset = LN_SIMD_NAME(seek)(v, start, at), stride = v->strides[v->rank - 1];
    int64_t size = (int64_t)ln_dtype_size(v->dtype), width = (int64_t)ln_dtype_size(s->type);
    int done = 0;
    while (done < n) {
        int64_t left = v->rank == 1 ? n : v->dims[v->rank - 1] - at[v->rank - 1];
        int run = (int)ln_min(left, n - done);
        LN_SIMD_NAME(store_run)(s, v->dtype, a + done * width, run, base + offset * size, stride);
        done += run;
        if (done < n) {
            offset = LN_SIMD_NAME(next_row)(v, offset - at[v->rank - 1] * stride, at);
            at[v->rank - 1] = 0;
        }
    }
}

/* ---- strips ---- */

#include "map/map_activations.inc.c"

#if defined(LN_SIMD_NEON64) || defined(LN_SIMD_AVX512) /* with 32 registers */
#include "map/map_blocks.inc.c"
#define LN_MAP_BLOCKS(...) __VA_ARGS__
#else
#define LN_MAP_BLOCKS(...)
#endif

static void LN_SIMD_NAME(map_strip)(const ln_map_program *p, const ln_map_view *views, char *const *bases,
                                    int64_t start, int n, char **registers) {
    /* Arithmetic runs to the end of a group of 16, so memory can serve as a register only if the strip has whole
     * groups. */
    bool full = n % 16 == 0;
    char *slots = (char *)(registers + p->n_registers);
    slots = (char *)(((uintptr_t)slots + 63) & ~(uintptr_t)63);
    LN_MAP_BLOCKS(map_run run; run.n_steps = 0; run.n = n; run.whole = n < LEAST_RUN ? 0 : n / BLOCK * BLOCK;)
    for (int k = 0; k < p->n_steps; k++) {
        const ln_map_step *s = &p->steps[k];
        /* Few elements take less time than the choice of what to do with them, so plain arithmetic comes first. */
        if (LN_MAP_BLOCKS(run.whole == 0 &&) s->direct == 0 && s->code >= LN_MAP_ADD && s->code != LN_MAP_TABLE) {
            LN_SIMD_NAME(map_step)(s, n, registers[s->a], registers[s->b], registers[s->c], registers[s->y]);
            continue;
        }
        const ln_map_view *v = &views[s->view];
        bool direct = s->direct && full && v->rank == 1 && v->strides[0] == 1 && bases[s->view];
        if (s->direct & LN_MAP_DIRECT_STORE && s->code != LN_MAP_STORE)
            registers[s->y] = direct ? bases[s->view] + start * (int64_t)ln_dtype_size(v->dtype)
                                     : slots + (size_t)s->y * p->register_bytes;
        switch (s->code) {
        case LN_MAP_LOAD:
        case LN_MAP_LOAD_DEQUANTIZED:
        case LN_MAP_IOTA:
            if (s->direct == LN_MAP_DIRECT_REPEAT) break;
            if (direct) {
                registers[s->y] = bases[s->view] + start * (int64_t)ln_dtype_size(v->dtype);
                break;
            }
            registers[s->y] = slots + (size_t)s->y * p->register_bytes;
            LN_MAP_BLOCKS(if (bases[s->view]) {
                char *memory = bases[s->view] + start * (int64_t)ln_dtype_size(v->dtype);
                if (map_run_memory(&run, s, v, memory, registers[s->y])) break;
            } map_run_flush(&run);)
            LN_SIMD_NAME(map_load)(s, v, bases[s->view], start, n, registers[s->y]);
            break;
        case LN_MAP_STORE:
        case LN_MAP_STORE_QUANTIZED:
            if (direct || !bases[s->view]) break;
            LN_MAP_BLOCKS(char *memory = bases[s->view] + start * (int64_t)ln_dtype_size(v->dtype);
                          if (map_run_memory(&run, s, v, memory, registers[s->a])) break; map_run_flush(&run);)
            LN_SIMD_NAME(store)(s, v, bases[s->view], start, n, registers[s->a]);
            break;
        case LN_MAP_TABLE:
            LN_MAP_BLOCKS(map_run_flush(&run);)
            LN_SIMD_NAME(map_table)
            (s, v, bases[s->view], (n + 15) & ~15, (const int32_t *)(void *)registers[s->a], registers[s->y]);
            break;
        default:
            LN_MAP_BLOCKS(if (map_run_arithmetic(&run, s, registers)) break; map_run_flush(&run);)
            LN_SIMD_NAME(map_step)(s, n, registers[s->a], registers[s->b], registers[s->c], registers[s->y]);
            break;
        }
    }
    LN_MAP_BLOCKS(map_run_flush(&run);)
}

static void LN_SIMD_NAME(clamp)(const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t rows,
                                int64_t columns, float low, float high) {
    vf l = vf_set1(low), h = vf_set1(high);
    for (int64_t r = 0; r < rows; r++) {
        const float *a = x + r * x_stride;
        float *b = y + r * y_stride;
        for (int64_t i = 0; i < columns; i += VF_WIDTH) {
            int n = (int)ln_min(VF_WIDTH, columns - i);
            vf v = n == VF_WIDTH ? vf_load(a + i) : vf_load_partial(a + i, n);
            vf w = vf_select(vf_eq(v, v), vf_min(vf_max(v, l), h), v); /* keeps NaN */
            if (n == VF_WIDTH)
                vf_store(b + i, w);
            else
                vf_store_partial(b + i, n, w);
        }
    }
}

#include "map/map_half.inc.c"

#if defined(LN_SIMD_NEON64)
#include "map/map_sum.inc.c"
#define LN_MAP_SUM(...) __VA_ARGS__
#else
#define LN_MAP_SUM(...)
#endif

extern const ln_map_isa LN_SIMD_NAME(ln_map_isa);
const ln_map_isa LN_SIMD_NAME(ln_map_isa) = {.strip = LN_SIMD_NAME(map_strip),
                                             .clamp = LN_SIMD_NAME(clamp),
                                             .half_sum = LN_SIMD_NAME(half_sum),
                                             .store = LN_SIMD_NAME(store_floats),
                                             LN_MAP_SUM(.sum = map_sum, ).lanes = VF_WIDTH,
                                             LN_MAP_ACTIVATIONS(.activate = act_run, .find_activations = act_find)};

#if !defined(LN_SIMD_SCALAR) /* without SIMD, plans use the references, and only epilogues need strips */
static linnet_status LN_SIMD_NAME(map_configure)(ln_call *call) { return ln_map_configure(call, LN_SIMD_ISA); }

static linnet_status LN_SIMD_NAME(map_run)(const ln_call *call, const ln_buffers *b, int phase, int64_t begin,
                                           int64_t end, int thread) {
    (void)phase;
    return ln_map_run(call, b, begin, end, thread, &LN_SIMD_NAME(ln_map_isa));
}

const ln_kernel_code LN_SIMD_NAME(ln_map_simd) = {
    .can = ln_map_can, .configure = LN_SIMD_NAME(map_configure), .run = LN_SIMD_NAME(map_run)};

/* cast, quantize and dequantize: ln_convert_configure writes the program. */
const ln_kernel_code LN_SIMD_NAME(ln_convert_simd) = {
    .can = ln_convert_can, .configure = ln_convert_configure, .run = LN_SIMD_NAME(map_run)};
#endif
