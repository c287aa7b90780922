/* gemm_fused.h - products whose results a map finishes: a residual in floats, and residuals of quantized graphs.
 * Part of test_gemm.c, after what it uses of that file. */
#include "map/map_epilogue.h"

#ifndef GEMM_FUSED_H
#define GEMM_FUSED_H

/* Fuses a residual and a clamp to [0, 40] into f32 and f16 results, and compares with the reference's f32 result. */
static void compare_fused(gemm_call *g, const char *what) {
    static const int64_t program[] = {LN_MAP_LOAD, LINNET_F32, 0, 0, 0, LN_MAP_LOAD,  LINNET_F32, 1, 0, 0,
                                      LN_MAP_ADD,  LINNET_F32, 0, 1, 0, LN_MAP_CONST, LINNET_F32, 0, 0, 0,
                                      LN_MAP_MAX,  LINNET_F32, 2, 3, 0, LN_MAP_CONST, LINNET_F32, 1, 0, 0,
                                      LN_MAP_MIN,  LINNET_F32, 4, 5, 0, LN_MAP_STORE, LINNET_F32, 6, 0, 0};
    static const double floats[] = {0, 40};
    int64_t n = span(&g->out), dtype = between(0, 1) ? LINNET_F32 : LINNET_F16;
    float *inner = g->memory[3].data, *expected = malloc((size_t)n * sizeof *expected);
    for (int k = 0; ln_kernels[k].code != NULL; k++)
        if ((ln_kernels[k].flags & LN_KERNEL_REFERENCE) && gemm_run(g, &ln_kernels[k], 1, 1, NULL)) break;
    g->outer = g->with_extra[3] = g->out;
    g->outer.dtype = (uint8_t)dtype;
    g->outer.quant = NULL;
    g->extra = guarded_alloc((size_t)n * sizeof(float), sizeof(float));
    fill(g->extra.data, LINNET_F32, n, false);
    for (int64_t i = 0; i < n; i++) {
        float v = inner[i] + ((const float *)g->extra.data)[i];
        expected[i] = v < 0 ? 0 : v > 40 ? 40 : v;
        if (dtype == LINNET_F16) expected[i] = ln_f16_to_f32(ln_f32_to_f16(expected[i]));
    }
    g->map = (ln_map_attributes){
        .program = {program, sizeof program / sizeof program[0]}, .floats = {floats, 2}, .dtypes = {&dtype, 1}};
    ln_tensor operands[2] = {g->out, g->out};
    g->epilogue = (ln_epilogue){.map = &g->map, .tile_input = 0, .n_inputs = 2, .operand = {-1, 0}};
    g->fused = ln_epilogue_fits(&g->map, operands, 2, 0, &g->out, &g->outer);
    for (int k = 0; ln_kernels[k].code != NULL && g->fused; k++) {
        const ln_kernel *kernel = &ln_kernels[k];
        if ((kernel->flags & LN_KERNEL_REFERENCE) || !can_run(kernel)) continue;
        memset(inner, 0xA5, (size_t)n * ln_dtype_size(g->outer.dtype));
        if (!gemm_run(g, kernel, (int)between(1, 5), 1, NULL)) continue;
        for (int64_t i = 0; i < n; i++, checks++)
            if (ln_load_f64(inner, (int)dtype, i) != expected[i] && failures++ < 40) {
                printf("FAIL %s fused to %s, %s: element %lld of %lld: expected %g, got %g\n", kernel->name,
                       linnet_dtype_name((int)dtype), what, (long long)i, (long long)n, expected[i],
                       ln_load_f64(inner, (int)dtype, i));
                break;
            }
    }
    g->fused = false;
    free(expected);
}

/* Runs every kernel that takes the call with its fused map, and compares the n integers. Counts in *fused the kernels
 * that add to their tiles themselves. */
static void expect_fused(gemm_call *g, const char *how, const char *what, const int32_t *expected, int64_t n, int dtype,
                         int *fused) {
    uint8_t *inner = g->memory[3].data;
    for (int k = 0; ln_kernels[k].code != NULL && g->fused; k++) {
        const ln_kernel *kernel = &ln_kernels[k];
        if ((kernel->flags & LN_KERNEL_REFERENCE) || !can_run(kernel)) continue;
        memset(inner, 0xA5, (size_t)n * ln_dtype_size(dtype));
        if (!gemm_run(g, kernel, (int)between(1, 5), 1, NULL)) continue;
        *fused += g->epilogue.sum.used;
        for (int64_t i = 0; i < n; i++, checks++)
            if (ln_load_i64(inner, dtype, i) != expected[i] && failures++ < 40) {
                printf("FAIL %s %s to %s, %s: element %lld of %lld: expected %d, got %d\n", kernel->name, how,
                       linnet_dtype_name(dtype), what, (long long)i, (long long)n, (int)expected[i],
                       (int)ln_load_i64(inner, dtype, i));
                break;
            }
    }
}

/* Fuses a residual of quantized graphs: an operand of 8 or 16 bits is dequantized and added, unless there is none, the
 * sum is limited and quantized. */
static void compare_quantized_sum(gemm_call *g, const char *what) {
    static const int64_t steps[][5] = {
        {LN_MAP_LOAD, LINNET_F32, 0, 0, 0}, {LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 1, 0, 0},
        {LN_MAP_ADD, LINNET_F32, 0, 1, 0},  {LN_MAP_CONST, LINNET_F32, 0, 0, 0},
        {LN_MAP_MAX, LINNET_F32, 2, 3, 0},  {LN_MAP_CONST, LINNET_F32, 1, 0, 0},
        {LN_MAP_MIN, LINNET_F32, 4, 5, 0},  {LN_MAP_STORE_QUANTIZED, LINNET_F32, 6, 0, 0}};
    static const int others[] = {LINNET_I8, LINNET_U8, LINNET_F32, LINNET_I16, LINNET_NONE};
    static const int stored[] = {LINNET_I8, LINNET_U8, LINNET_I16};
    int64_t program[sizeof steps / sizeof **steps], n = span(&g->out), words = 0, dtype = stored[between(0, 2)];
    const int kind = others[between(0, 4)], other = kind == LINNET_NONE ? LINNET_I8 : kind;
    const bool added = kind != LINNET_NONE;
    for (int k = 0; k < 8; k++) {
        if (!added && (k == 1 || k == 2)) continue;
        memcpy(program + words, steps[k], sizeof steps[k]);
        if (!added && (k == 4 || k == 6)) program[words + 2] -= 2, program[words + 3] -= 2;
        if (!added && k == 7) program[words + 2] -= 2;
        words += 5;
    }
    float *inner = g->memory[3].data, most = 0;
    int32_t *expected = malloc((size_t)n * sizeof *expected);
    for (int k = 0; ln_kernels[k].code != NULL; k++)
        if ((ln_kernels[k].flags & LN_KERNEL_REFERENCE) && gemm_run(g, &ln_kernels[k], 1, 1, NULL)) break;
    for (int64_t i = 0; i < n; i++) most = fabsf(inner[i]) > most ? fabsf(inner[i]) : most;
    const int32_t low = dtype == LINNET_I16 ? -32768 : dtype == LINNET_I8 ? -128 : 0;
    const int32_t high = dtype == LINNET_I16 ? 32767 : dtype == LINNET_I8 ? 127 : 255;
    float scales[2] = {(most + 1) / (float)between(50, 200), (most + 1) / (float)between(50, 200)};
    if (dtype == LINNET_I16) scales[1] /= 256;
    if (between(0, 2) == 0) scales[1] = exp2f(floorf(log2f(scales[1]))); /* stored by multiplication */
    int32_t zeros[2] = {(int32_t)(other == LINNET_U8 ? between(0, 255) : between(-128, 127)),
                        (int32_t)between(low, high)};
    ln_quant quants[2];
    for (int i = 0; i < 2; i++) {
        quants[i] = (ln_quant){.scheme = LN_QUANT_TENSOR, .bits = 8, .count = 1};
        quants[i].scale = &scales[i], quants[i].zero = &zeros[i];
    }
    if (dtype == LINNET_I16) quants[1].bits = 16;
    if (other == LINNET_I16) quants[0].bits = 16, scales[0] /= 256;
    if (other == LINNET_F32) program[5] = LN_MAP_LOAD, zeros[0] = 0, scales[0] = 1;
    const double limits[] = {between(0, 3) ? -1e30 : -most / 2, between(0, 1) ? 0.75 * (double)most : 1e30};
    g->outer = g->with_extra[3] = g->out;
    g->outer.dtype = (uint8_t)dtype, g->outer.quant = &quants[1];
    g->with_extra[3].dtype = (uint8_t)other, g->with_extra[3].quant = other == LINNET_F32 ? NULL : &quants[0];
    g->extra = guarded_alloc((size_t)n * ln_dtype_size(other), ln_dtype_size(other));
    fill(g->extra.data, other, n, false);
    for (int64_t i = 0; i < n; i++) {
        if (other == LINNET_F32 && i % 7 == 0) ((float *)g->extra.data)[i] = i % 2 ? NAN : INFINITY;
        float v = inner[i];
        if (added) v += (float)(ln_load_f64(g->extra.data, other, i) - zeros[0]) * scales[0];
        v = v<(float)limits[0] ? (float)limits[0] : v>(float) limits[1] ? (float)limits[1] : v; /* NaN stays */
        if (v != v) v = -INFINITY;
        expected[i] = ln_round_clamp(v / scales[1], zeros[1], low, high);
    }
    g->map = (ln_map_attributes){.program = {program, words}, .floats = {limits, 2}, .dtypes = {&dtype, 1}};
    const ln_tensor operands[2] = {g->out, g->with_extra[3]};
    g->epilogue = (ln_epilogue){.map = &g->map, .n_inputs = added ? 2 : 1, .operand = {-1, 0}};
    g->fused = ln_epilogue_fits(&g->map, operands, added ? 2 : 1, 0, &g->out, &g->outer);
    expect_fused(g, "fused", what, expected, n, (int)dtype, g->in[0].dtype == LINNET_I16 ? &words_fused : &sums_fused);
    g->fused = false;
    guarded_free(&g->extra);
    free(expected);
}

/* Fuses a map into results of 8 bits: they are dequantized, an operand of 8 bits may be dequantized and added, the sum
 * is limited and quantized. */
static void compare_byte_sum(gemm_call *g, const char *what) {
    static const int64_t steps[][5] = {{LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 0, 0, 0},
                                       {LN_MAP_LOAD_DEQUANTIZED, LINNET_F32, 1, 0, 0},
                                       {LN_MAP_ADD, LINNET_F32, 1, 0, 0},
                                       {LN_MAP_CONST, LINNET_F32, 0, 0, 0},
                                       {LN_MAP_MAX, LINNET_F32, 2, 3, 0},
                                       {LN_MAP_CONST, LINNET_F32, 1, 0, 0},
                                       {LN_MAP_MIN, LINNET_F32, 4, 5, 0},
                                       {LN_MAP_STORE_QUANTIZED, LINNET_F32, 6, 0, 0}};
    int64_t program[sizeof steps / sizeof **steps], n = span(&g->out), words = 0;
    const int64_t dtype = between(0, 1) ? LINNET_I8 : LINNET_U8, other = between(0, 1) ? LINNET_I8 : LINNET_U8;
    const bool added = between(0, 2) > 0, even = between(0, 2) == 0;
    for (int k = 0; k < 8; k++) {
        if (!added && (k == 1 || k == 2)) continue;
        memcpy(program + words, steps[k], sizeof steps[k]);
        if (!added && (k == 4 || k == 6)) program[words + 2] -= 2, program[words + 3] -= 2;
        if (!added && k == 7) program[words + 2] -= 2;
        words += 5;
    }
    uint8_t *inner = g->memory[3].data;
    int32_t *expected = malloc((size_t)n * sizeof *expected);
    for (int k = 0; ln_kernels[k].code != NULL; k++)
        if ((ln_kernels[k].flags & LN_KERNEL_REFERENCE) && gemm_run(g, &ln_kernels[k], 1, 1, NULL)) break;
    /* Equal scales, and half the scale of the sum, make ties. */
    const float tile_scale = g->out.quant->scale[0];
    float scales[2] = {tile_scale * (even ? 1 : (float)between(1, 1000) / 700),
                       tile_scale * (even ? 2 : (float)between(100, 1000) / 700)};
    int32_t zeros[2] = {(int32_t)(other == LINNET_I8 ? between(-128, 127) : between(0, 255)),
                        (int32_t)(dtype == LINNET_I8 ? between(-128, 127) : between(0, 255))};
    ln_quant quants[2];
    for (int i = 0; i < 2; i++) {
        quants[i] = (ln_quant){.scheme = LN_QUANT_TENSOR, .bits = 8, .count = 1};
        quants[i].scale = &scales[i], quants[i].zero = &zeros[i];
    }
    const int32_t tile_zero = g->out.quant->zero == NULL ? 0 : g->out.quant->zero[0];
    const double limits[] = {between(0, 1) ? -1e30 : -20 * (double)scales[1],
                             between(0, 1) ? 30 * (double)scales[1] : 1e30};
    g->outer = g->with_extra[3] = g->out;
    g->outer.dtype = (uint8_t)dtype, g->outer.quant = &quants[1];
    g->with_extra[3].dtype = (uint8_t)other, g->with_extra[3].quant = &quants[0];
    g->extra = guarded_alloc((size_t)n, 1);
    fill(g->extra.data, (int)other, n, false);
    for (int64_t i = 0; i < n; i++) {
        float v = (float)(ln_load_i64(inner, g->out.dtype, i) - tile_zero) * tile_scale;
        if (added) v += (float)(ln_load_i64(g->extra.data, (int)other, i) - zeros[0]) * scales[0];
        v = v < (float)limits[0] ? (float)limits[0] : v;
        v = v > (float)limits[1] ? (float)limits[1] : v;
        expected[i] =
            ln_round_clamp(v / scales[1], zeros[1], dtype == LINNET_I8 ? -128 : 0, dtype == LINNET_I8 ? 127 : 255);
    }
    g->map = (ln_map_attributes){.program = {program, words}, .floats = {limits, 2}, .dtypes = {&dtype, 1}};
    const ln_tensor operands[2] = {g->out, g->with_extra[3]};
    g->epilogue = (ln_epilogue){.map = &g->map, .n_inputs = added ? 2 : 1, .operand = {-1, 0}};
    g->fused = ln_epilogue_fits(&g->map, operands, added ? 2 : 1, 0, &g->out, &g->outer);
    expect_fused(g, "with bytes fused", what, expected, n, (int)dtype, &bytes_fused);
    g->fused = false;
    guarded_free(&g->extra);
    free(expected);
}

#endif
