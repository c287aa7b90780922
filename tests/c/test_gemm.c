/* test_gemm.c - every GEMM micro-kernel against plain loops, and every matmul and conv kernel against the reference.
 * Floats hold small integers, so every sum is exact and results must be equal to the last bit. */
#include "gemm_call.h"

static uint64_t state = 88172645463325252u;
static int failures, checks, sums_fused, bytes_fused, words_fused;

static uint32_t random_bits(void) { /* xorshift64, Marsaglia 2003 */
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}
static int64_t between(int64_t low, int64_t high) {
    return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

static void fill(void *data, int dtype, int64_t n, bool extreme) {
    for (int64_t i = 0; i < n; i++) {
        int64_t low = -4, high = 4;
        if (dtype == LINNET_NONE) return;
        if (dtype == LINNET_I8)
            low = -128, high = 127;
        else if (dtype == LINNET_U8)
            low = 0, high = 255;
        else if (dtype == LINNET_I16)
            low = -32768, high = 32767;
        else if (dtype == LINNET_I32 || dtype == LINNET_I64)
            low = -30000, high = 30000;
        ln_store_f64(data, dtype, i, (double)(extreme ? low : between(low, high)));
    }
}

/* ---- micro-kernels ---------------------------------------------------------------------------------------------- */

enum { MOST_TAPS = 3, MOST_K = 1000 };

typedef struct ukernel_memory {
    guarded rows[LN_GEMM_MAX_ROWS * MOST_TAPS];
    guarded b, init;
} ukernel_memory;

/* Returns element k of a row of A, as the products take it. */
static double element_of(const ln_gemm_set *set, const void *row, int64_t k) {
    const int8_t *parts = (const int8_t *)row + k / 4 * 8 + k % 4; /* if the row is split */
    return set->split ? 256 * parts[0] + parts[4] : ln_load_f64(row, set->a_dtype, k);
}

static void check_tile(const char *name, const ln_gemm_set *set, ukernel_memory *memory, int rows, bool half,
                       int64_t columns, int64_t taps, int64_t kc, bool extreme) {
    if ((half ? set->half : set->full)[rows] == NULL) return;
    int64_t width = half ? set->width / 2 : set->width, depth = set->depth;
    int64_t padded = (int64_t)ln_round_up((size_t)kc, (size_t)depth), ldc = columns + 3;
    if (set->whole) kc = padded;
    size_t a_size = ln_dtype_size(set->a_dtype), c_size = ln_dtype_size(set->c_dtype);
    const void *a[LN_GEMM_MAX_ROWS * MOST_TAPS];
    for (int64_t i = 0; i < taps * rows; i++) {
        guarded *g = &memory->rows[i];
        a[i] = (char *)g->map + g->mapped - (size_t)sysconf(_SC_PAGESIZE) - (size_t)kc * a_size;
        if (extreme && set->a_dtype == LINNET_I16 && set->c_dtype == LINNET_I32) /* widened 8-bit activations */
            for (int64_t k = 0; k < kc; k++) ln_store_i64((void *)a[i], LINNET_I16, k, -128);
        else
            fill((void *)a[i], set->a_dtype, kc, extreme);
    }
    int64_t n_b = taps * padded * width;
    char *b = memory->b.data;
    fill(b, set->b_dtype, n_b, extreme);
    for (int64_t i = 0; set->b_dtype == LINNET_I16 && i < n_b;
         i++) { /* 32 bits hold the sum of LN_GEMM_BOUNDED products */
        const int64_t most = set->c_dtype == LINNET_I64 ? 65535 / LN_GEMM_BOUNDED : 128;
        ln_store_i64(b, LINNET_I16, i, ln_load_i64(b, LINNET_I16, i) % (most + 1));
        if (extreme) ln_store_i64(b, LINNET_I16, i, -most);
    }
    for (int64_t i = 0; set->symmetric && i < n_b; i++)
        if ((int8_t)b[i] == INT8_MIN) b[i] = (char)-INT8_MAX;
    for (int64_t t = 0; t < taps; t++)
        for (int64_t k = kc; k < padded; k++)
            for (int64_t n = 0; n < width; n++)
                ln_store_i64(b, set->b_dtype, ((t * padded + k) / depth * width + n) * depth + k % depth, 0);
    fill(memory->init.data, set->c_dtype, width, false);
    guarded c = guarded_alloc((size_t)((rows - 1) * ldc + columns) * c_size, c_size);
    memset(c.data, 0xA5, (size_t)((rows - 1) * ldc + columns) * c_size);
    int32_t row_sum[LN_GEMM_MAX_ROWS];
    fill(row_sum, LINNET_I32, rows, false);
    bool sums = set->c_dtype == LINNET_I32 && between(0, 1);
    ln_gemm_tile tile = {.a = a,
                         .a_step = 1,
                         .taps = taps,
                         .kc = kc,
                         .b = b,
                         .b_step = width * (int64_t)ln_dtype_size(set->b_dtype),
                         .c = c.data,
                         .ldc = ldc,
                         .columns = columns,
                         .init = memory->init.data,
                         .row_sum = sums ? row_sum : NULL,
                         .wide = set->c_dtype == LINNET_I64,
                         .bounded = 1,
                         .low = -50,
                         .high = 60};
    (half ? set->half : set->full)[rows](&tile);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < (i == rows - 1 ? columns : ldc); n++) {
            int64_t at = i * ldc + n;
            double got = ln_load_f64(c.data, set->c_dtype, at);
            double expected;
            if (n >= columns) { /* bytes between rows must not change */
                char pattern[8];
                memset(pattern, 0xA5, sizeof pattern);
                expected = ln_load_f64(pattern, set->c_dtype, 0);
            } else {
                expected = ln_load_f64(memory->init.data, set->c_dtype, n) + (sums ? row_sum[i] : 0);
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t k = 0; k < kc; k++)
                        expected +=
                            element_of(set, a[t * rows + i], k) *
                            ln_load_f64(b, set->b_dtype, ((t * padded + k) / depth * width + n) * depth + k % depth);
                if (set->c_dtype == LINNET_F32) expected = expected < -50 ? -50 : expected > 60 ? 60 : expected;
            }
            checks++;
            if (got != expected && failures++ < 20)
                printf("FAIL %s %d x %lld%s taps %lld kc %lld: row %lld column %lld: expected %g, got %g\n", name, rows,
                       (long long)columns, half ? " half" : "", (long long)taps, (long long)kc, (long long)i,
                       (long long)n, expected, got);
        }
    guarded_free(&c);
}

static void check_set(const char *name, const ln_gemm_set *set) {
    static const int64_t ks[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 67};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ukernel_memory memory;
    for (int i = 0; i < LN_GEMM_MAX_ROWS * MOST_TAPS; i++) memory.rows[i] = guarded_alloc(page, 1);
    memory.b = guarded_alloc((size_t)(MOST_TAPS * (MOST_K + 8) * set->width) * 4, 64);
    memory.init = guarded_alloc((size_t)set->width * 8, 64);
    for (int rows = 1; rows <= set->rows; rows++)
        for (size_t k = 0; k < sizeof ks / sizeof ks[0]; k++) {
            int64_t columns = between(1, set->width);
            check_tile(name, set, &memory, rows, false, set->width, 1, ks[k], false);
            check_tile(name, set, &memory, rows, false, columns, between(1, MOST_TAPS), ks[k], false);
            check_tile(name, set, &memory, rows, true, set->width / 2, between(1, MOST_TAPS), ks[k], false);
            check_tile(name, set, &memory, rows, true, between(1, set->width / 2), 1, ks[k], false);
        }
    for (int rows = 1; rows <= set->rows; rows++) /* largest products of one sign: 32-bit parts must not overflow */
        for (int half = 0; half < 2; half++)
            check_tile(name, set, &memory, rows, half, set->width / 2, 2, MOST_K - rows % 2, true);
    for (int i = 0; i < LN_GEMM_MAX_ROWS * MOST_TAPS; i++) guarded_free(&memory.rows[i]);
    guarded_free(&memory.b);
    guarded_free(&memory.init);
}

/* ---- whole calls ------------------------------------------------------------------------------------------------- */

static void fill_operands(gemm_call *g) {
    for (int i = 0; i < 3; i++)
        if (g->in[i].dtype != LINNET_NONE) fill(g->memory[i].data, g->in[i].dtype, span(&g->in[i]), false);
    if (g->in[1].dtype ==
        LINNET_I16) { /* two thirds without those that do not fit two signed bytes, half small; a bias of 40 bits */
        int16_t *wide = g->memory[1].data;
        const int64_t most = between(0, 2) == 0 ? 32767 : 32639, part = between(0, 1) ? 1 : 8 << between(0, 6);
        for (int64_t i = 0; i < span(&g->in[1]); i++) wide[i] = (int16_t)(ln_min(wide[i], most) / part);
        int64_t *bias = g->memory[2].data;
        for (int64_t i = 0; g->in[2].dtype == LINNET_I64 && i < span(&g->in[2]); i++) bias[i] *= 1 << between(0, 25);
    }
    if (g->in[1].dtype != LINNET_I8 || between(0, 1)) return;
    int8_t *weights = g->memory[1].data; /* some kernels take only weights of which none is -128 */
    for (int64_t i = 0; i < span(&g->in[1]); i++)
        if (weights[i] == INT8_MIN) weights[i] = -INT8_MAX;
}

static void quantize_operands(gemm_call *g, int64_t k, int64_t channels, int axis) {
    bool wide = g->in[0].dtype == LINNET_I16, per_axis = channels <= 256 && between(0, 1);
    for (int j = 0; j < 256; j++) {
        g->scales[0][j] = 0.02f;
        g->scales[1][j] = 0.01f * (1 + (float)between(0, 100) / 64) / (g->in[1].dtype == LINNET_I16 ? 256 : 1);
        /* The sum of k random products grows with the square root of k; some results saturate. */
        g->scales[2][j] = 0.02f * 0.01f * (wide ? 200.0f : 60.0f) * sqrtf((float)k);
        g->zeros[0][j] = wide ? 0 : (int32_t)(g->in[0].dtype == LINNET_U8 ? between(0, 255) : between(-128, 127));
        g->zeros[1][j] = g->in[1].dtype == LINNET_U8 ? 117 : 0;
        g->zeros[2][j] = g->out.dtype == LINNET_U8 ? 100 : wide ? 0 : -7;
    }
    if (!wide && g->in[1].dtype == LINNET_I8 && between(0, 3) == 0)
        for (int j = 0; j < 256; j++) g->zeros[1][j] = 5;
    gemm_quantize(g, 0, &g->in[0], 1, 0);
    gemm_quantize(g, 1, &g->in[1], per_axis ? channels : 1, axis);
    if (g->out.dtype != LINNET_F32 && g->out.dtype != LINNET_I32 && g->out.dtype != LINNET_I64)
        gemm_quantize(g, 2, &g->out, 1, 0);
}

/* Runs the reference, then every other kernel that supports the call, and compares all bytes of the output. */
static int compare(gemm_call *g, const char *what) {
    size_t bytes = (size_t)span(&g->out) * ln_dtype_size(g->out.dtype);
    char *expected = malloc(bytes);
    bool known = false;
    for (int k = 0; ln_kernels[k].code != NULL && !known; k++)
        if (ln_kernels[k].flags & LN_KERNEL_REFERENCE) known = gemm_run(g, &ln_kernels[k], 1, 1, NULL);
    if (!known) printf("FAIL the reference does not take %s\n", what), failures++;
    memcpy(expected, g->memory[3].data, bytes);
    int taken = 0;
    for (int k = 0; ln_kernels[k].code != NULL && known; k++) {
        const ln_kernel *kernel = &ln_kernels[k];
        if ((kernel->flags & LN_KERNEL_REFERENCE) || !can_run(kernel)) continue;
        bool constant = between(0, 2) != 0; /* packed beforehand, or in phase 0 of the run */
        bool constant_bias = between(0, 3) != 0;
        g->in[1].data = constant ? g->memory[1].data : NULL;
        g->in[2].data = constant_bias ? g->memory[2].data : NULL;
        memset(g->memory[3].data, 0xA5, bytes);
        int threads = (int)between(1, 5);
        if (!gemm_run(g, kernel, threads, 1, NULL)) continue;
        taken++, checks++;
        if (memcmp(expected, g->memory[3].data, bytes) != 0 && failures++ < 40) {
            size_t size = ln_dtype_size(g->out.dtype), at = 0;
            while (memcmp(expected + at * size, (char *)g->memory[3].data + at * size, size) == 0) at++;
            printf("FAIL %s, %s (constant %d, bias constant %d, threads %d): element %zu of %zu: expected %g, got %g\n",
                   kernel->name, what, constant, constant_bias, threads, at, bytes / size,
                   ln_load_f64(expected, g->out.dtype, (int64_t)at),
                   ln_load_f64(g->memory[3].data, g->out.dtype, (int64_t)at));
        }
    }
    free(expected);
    return taken;
}

#include "gemm_fused.h"

/* x, w, bias, y. */
static const int dtype_sets[][4] = {
    {LINNET_F32, LINNET_F32, LINNET_F32, LINNET_F32}, {LINNET_F32, LINNET_F32, LINNET_NONE, LINNET_F32},
    {LINNET_F16, LINNET_F16, LINNET_F16, LINNET_F16}, {LINNET_BF16, LINNET_BF16, LINNET_BF16, LINNET_BF16},
    {LINNET_I8, LINNET_I8, LINNET_I32, LINNET_I8},    {LINNET_I8, LINNET_I8, LINNET_I32, LINNET_F32},
    {LINNET_U8, LINNET_I8, LINNET_I32, LINNET_U8},    {LINNET_U8, LINNET_U8, LINNET_NONE, LINNET_I32},
    {LINNET_I8, LINNET_U8, LINNET_I32, LINNET_I8},    {LINNET_I16, LINNET_I8, LINNET_I64, LINNET_I16},
    {LINNET_I16, LINNET_I8, LINNET_NONE, LINNET_F32}, {LINNET_I16, LINNET_I8, LINNET_I32, LINNET_I16},
    {LINNET_I8, LINNET_I8, LINNET_NONE, LINNET_I32},  {LINNET_U8, LINNET_I8, LINNET_I32, LINNET_I8},
    {LINNET_I16, LINNET_I16, LINNET_I64, LINNET_I16}, {LINNET_I16, LINNET_I16, LINNET_NONE, LINNET_F32},
    {LINNET_I16, LINNET_I16, LINNET_I32, LINNET_I64}, {LINNET_I16, LINNET_I16, LINNET_I64, LINNET_I8},
};
enum { N_DTYPE_SETS = sizeof dtype_sets / sizeof dtype_sets[0] };

static int check_conv(const int dtypes[4], bool transposed) {
    gemm_call *g = calloc(1, sizeof *g);
    int spatial = (int)between(1, 2) + (between(0, 9) == 0);
    int64_t group = between(0, 3) == 0 ? between(2, 3) : 1;
    static const int64_t some[] = {1, 2, 3, 4, 5, 8, 13, 16, 24, 31, 32, 33, 48, 64, 65, 70, 96};
    int last = spatial == 3 ? 7 : 16; /* at most 16 channels in three dimensions, so that a call takes 3e8 products */
    int64_t in = some[between(0, last)], out = group == 1 ? some[between(0, last)] : between(4, 40);
    int64_t x[5] = {between(1, 2), in * group}, w[5] = {out * group, in}, strides[3] = {1, 1, 1};
    int64_t dilations[3] = {1, 1, 1}, pads[3] = {0, 0, 0};
    bool one = between(0, 2) == 0;
    for (int i = 0; i < spatial; i++) {
        w[2 + i] = one ? 1 : between(1, 4);
        strides[i] = between(1, 2), dilations[i] = one ? 1 : between(1, 2), pads[i] = one ? 0 : between(0, 2);
        x[2 + i] = between(ln_max(1, (w[2 + i] - 1) * dilations[i] + 1 - 2 * pads[i]), spatial == 3 ? 7 : 11);
    }
    gemm_make_conv(g, dtypes, spatial, x, w, strides, dilations, pads, group, between(0, 4) != 0);
    /* Like a weight gradient: a kernel nearly as large as the input. Transposed, it would take 7e9 products. */
    if (spatial == 2 && !transposed && between(0, 29) == 0) {
        g->lists[0][0] = 0;
        w[2] = w[3] = 29, x[2] = 31, x[3] = 30, pads[0] = pads[1] = 1, dilations[0] = dilations[1] = 1;
        gemm_make_conv(g, dtypes, spatial, x, w, strides, dilations, pads, group, between(0, 1) != 0);
    }
    if (transposed) {
        int64_t w_out = out;
        const bool beside = between(0, 2) == 0; /* windows that meet and do not overlap */
        w[0] = in * group, w[1] = w_out;
        for (int i = 0; i < spatial; i++) {
            strides[i] = beside ? w[2 + i] : between(1, 3);
            if (beside) pads[i] = 0, dilations[i] = 1;
            pads[i] = ln_min(pads[i], ((x[2 + i] - 1) * strides[i] + (w[2 + i] - 1) * dilations[i]) / 2);
        }
        gemm_make_transpose(g, dtypes, spatial, x, w, strides, dilations, pads, group, between(0, 4) != 0);
    }
    int64_t k = in;
    for (int i = 0; i < spatial; i++) k *= w[2 + i];
    if (!ln_dtype_is_float(dtypes[0])) {
        quantize_operands(g, k, out * group, transposed ? 1 : 0);
        if (transposed && group > 1) g->quant[1].scheme = LN_QUANT_TENSOR, g->quant[1].count = 1;
        g->conv.requant = g->transpose.requant = between(0, 2);
    }
    gemm_allocate(g);
    fill_operands(g);
    char text[160];
    snprintf(text, sizeof text,
             "%s %s x %s to %s, [%lld %lld %lld %lld] by [%lld %lld %lld %lld] stride %lld group %lld", g->op.name,
             linnet_dtype_name(dtypes[0]), linnet_dtype_name(dtypes[1]), linnet_dtype_name(dtypes[3]), (long long)x[0],
             (long long)x[1], (long long)x[2], (long long)x[3], (long long)w[0], (long long)w[1], (long long)w[2],
             (long long)w[3], (long long)strides[0], (long long)group);
    int taken = compare(g, text);
    if (!transposed && ln_dtype_size(dtypes[3]) == 1) compare_byte_sum(g, text);
    if (dtypes[3] == LINNET_F32) compare_fused(g, text);
    if (dtypes[3] == LINNET_F32 && !ln_dtype_is_float(dtypes[0])) {
        guarded_free(&g->extra);
        compare_quantized_sum(g, text);
    }
    gemm_free(g);
    free(g);
    return taken;
}

/* size: m, n and k of one plain product; NULL: random. */
static int check_matmul(const int dtypes[4], const int64_t *size) {
    static const int64_t some[] = {1, 2, 3, 7, 8, 14, 15, 16, 17, 31, 32, 33, 50, 64, 65, 100, 512, 5001};
    gemm_call *g = calloc(1, sizeof *g);
    g->op = (ln_op){.name = "matmul", .id = LN_OP_MATMUL};
    int64_t m = some[between(0, 15)], n = between(0, 15) == 0 ? 1100 : some[between(0, 15)],
            k = some[between(0, between(0, 9) ? 16 : 17)];
    int64_t b1 = between(1, 3), b2 = between(1, 3), a_dims[4], b_dims[4], y_dims[4];
    int batch = (int)between(0, 2), b_batch = (int)between(0, 2);
    g->matmul.transpose_a = size == NULL && between(0, 2) == 0;
    g->matmul.transpose_b = between(0, 1);
    bool a_vector = size == NULL && between(0, 7) == 0, b_vector = size == NULL && !a_vector && between(0, 7) == 0;
    int ar = 0, br = 0, yr = 0;
    if (size != NULL) batch = b_batch = 0, m = size[0], n = size[1], k = size[2];
    if (a_vector) batch = 0, m = 1;
    if (b_vector) b_batch = 0, n = 1;
    bool broadcast = between(0, 2) == 0; /* b has one matrix for all batches */
    for (int i = 0; i < batch; i++) a_dims[ar++] = i == batch - 1 ? b2 : b1;
    for (int i = 0; i < b_batch; i++) b_dims[br++] = broadcast && batch >= b_batch ? 1 : i == b_batch - 1 ? b2 : b1;
    for (int i = 0; i < (batch > b_batch ? batch : b_batch); i++)
        y_dims[yr++] = i == (batch > b_batch ? batch : b_batch) - 1 ? b2 : b1;
    if (!a_vector) a_dims[ar++] = g->matmul.transpose_a ? k : m;
    a_dims[ar++] = g->matmul.transpose_a && !a_vector ? m : k;
    b_dims[br++] = b_vector ? k : g->matmul.transpose_b ? n : k;
    if (!b_vector) b_dims[br++] = g->matmul.transpose_b ? k : n;
    if (!a_vector) y_dims[yr++] = m;
    if (!b_vector) y_dims[yr++] = n;
    int64_t bias = between(0, 4) == 0 ? 1 : n;
    tensor(&g->in[0], dtypes[0], ar, a_dims, false);
    tensor(&g->in[1], dtypes[1], br, b_dims, false);
    tensor(&g->in[2], dtypes[2], 1, &bias, false);
    tensor(&g->out, dtypes[3], yr, y_dims, false);
    if (!ln_dtype_is_float(dtypes[0])) {
        quantize_operands(g, k, n, b_vector ? 0 : g->matmul.transpose_b ? br - 2 : br - 1);
        if (b_vector) g->quant[1].scheme = LN_QUANT_TENSOR, g->quant[1].count = 1;
        g->matmul.requant = between(0, 2);
    }
    gemm_allocate(g);
    fill_operands(g);
    char text[160];
    snprintf(text, sizeof text, "matmul %s x %s to %s, m %lld n %lld k %lld, ranks %d %d, transposed %d %d",
             linnet_dtype_name(dtypes[0]), linnet_dtype_name(dtypes[1]), linnet_dtype_name(dtypes[3]), (long long)m,
             (long long)n, (long long)k, ar, br, (int)g->matmul.transpose_a, (int)g->matmul.transpose_b);
    int taken = compare(g, text);
    if (dtypes[3] == LINNET_F32) compare_fused(g, text);
    if (dtypes[3] == LINNET_F32 && !ln_dtype_is_float(dtypes[0])) {
        guarded_free(&g->extra);
        compare_quantized_sum(g, text);
    }
    gemm_free(g);
    free(g);
    return taken;
}

/* Rows, columns and k around the tiles of every set, and blocks of 48 rows; primes. */
static int check_sizes(const int dtypes[4]) {
    static const int64_t rows[] = {1, 3, 4, 5, 6, 7, 13, 47, 48, 49, 53, 97};
    static const int64_t columns[] = {1, 7, 8, 9, 11, 15, 16, 17, 24, 31, 33};
    static const int64_t ks[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 15, 16, 17, 23, 31, 32, 33, 47};
    int taken = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t j = 0; j < sizeof columns / sizeof columns[0]; j++)
            taken += check_matmul(dtypes,
                                  (int64_t[]){rows[i], columns[j], ks[(5 * i + 7 * j) % (sizeof ks / sizeof ks[0])]});
    /* Single rows of many panels, in several passes. */
    for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++)
        taken += check_matmul(dtypes, (int64_t[]){1, 16 * (int64_t)(3 * j + 1) + ks[j] % 16, ks[j]});
    taken += check_matmul(dtypes, (int64_t[]){1, 1621, 31});
    return taken;
}

int main(int argc, char **argv) {
    read_only(&argc, argv);
    int repeats = argc > 1 ? atoi(argv[1]) : 60;
#define LN_GEMM_UKERNEL(isa, symbol)                                                                                   \
    if (((ln_features)LN_ISA_##isa & ~machine_features()) == 0 && wants_name(#symbol "__" #isa) &&                     \
        (only_dtype == LINNET_NONE || strstr(#symbol, linnet_dtype_name(only_dtype)) != NULL))                         \
        check_set(#symbol "__" #isa, &symbol##__##isa);
#if defined(__x86_64__)
#include "kernels_x86/gemm/gemm_ukernels.inc"
#elif defined(__aarch64__)
#include "kernels_arm/gemm/gemm_ukernels.inc"
#elif defined(__arm__) && defined(__ARM_NEON)
#include "kernels_arm/v7/gemm/gemm_ukernels.inc"
#endif
    for (int d = 0; d < N_DTYPE_SETS; d++) {
        int taken = 0;
        if (!wants_dtype(dtype_sets[d][0])) continue;
        if (!ln_dtype_is_float(dtype_sets[d][0])) taken += check_sizes(dtype_sets[d]);
        for (int i = 0; i < repeats; i++)
            taken += check_conv(dtype_sets[d], false) + check_matmul(dtype_sets[d], NULL) +
                     (i % 2 ? check_conv(dtype_sets[d], true) : 0);
        printf("%s x %s to %s: %d kernel runs\n", linnet_dtype_name(dtype_sets[d][0]),
               linnet_dtype_name(dtype_sets[d][1]), linnet_dtype_name(dtype_sets[d][3]), taken);
        /* A single round may draw a case that no fast kernel takes. */
        if (taken + 1 < repeats && linnet_isa_name(1) != NULL && !is_filtered())
            printf("FAIL fast kernels take too few calls\n"), failures++;
    }
    bool bytes = false; /* whether a kernel of this machine applies maps to 8-bit results */
    for (int k = 0; ln_kernels[k].code != NULL; k++)
        bytes = bytes || ((ln_kernels[k].flags & LN_KERNEL_BYTES) && can_run(&ln_kernels[k]));
    /* A few random calls may have no such map. */
    if (bytes && bytes_fused == 0 && repeats >= 20 && !is_filtered())
        printf("FAIL no map of 8-bit results was fused\n"), failures++;
    if (sums_fused == 0 && !is_filtered()) printf("FAIL no kernel adds a quantized residual\n"), failures++;
    if (words_fused == 0 && !is_filtered()) printf("FAIL no kernel stores sums of 16-bit numbers\n"), failures++;
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
