/* map.h - epilogues: pointwise register programs (maps) that the kernel of another op applies to its result.
 * The strip interpreter is in runtime_c/map/map_strip.inc.c (compiled per ISA level); the reference is in
 * runtime_c/ops/map.c. */
#ifndef LN_MAP_H
#define LN_MAP_H

#include "kernel/kernel.h"

/* A residual addition in a quantized graph. It has three parts: an operand as large as the op's own result is
 * dequantized (unless it is f32) and added to the result; the sum is clamped; the sum is quantized and stored. If the
 * op's own result is i8 or u8, it is dequantized, too. The operand may be absent if the op's own result is i8 or u8,
 * which then only gets another scale, or if `words` is set. */
typedef struct ln_quantized_sum {
    bool used;     /* false: the epilogue is something else, and the other fields mean nothing */
    bool words;    /* the op's result is f32; the stored integer or the operand has 16 bits, or there is no operand */
    int input;     /* the call's input that is added, i8, u8, i16 or f32; 0: none */
    uint8_t dtype; /* dtype of this input */
    uint8_t tile;  /* dtype of the op's own result: f32, i8 or u8 */
    uint8_t y_dtype;
    int32_t zero, y_zero;            /* zero points of the operand and of the stored integer */
    float scale, y_scale, y_inverse; /* scales of the operand and of the stored integer; 1 / y_scale */
    float low, high;                 /* limits of the sum, both finite */
    /* Only if `tile` is i8 or u8. tile_scale is the scale of the op's own result. A kernel may approximate the quotient
     * sum / y_scale as (result - its zero point) * factor + operand * other_factor + constant. The approximation
     * differs from the exact f32 quotient, which is rounded and stored, by at most `error`. From elements of u8,
     * 128 is subtracted here. */
    float tile_scale, factor, other_factor, constant, error;
    int32_t y_low, y_high; /* limits of the stored integer */
} ln_quantized_sum;

/* The map that is applied to an op's result before it is stored. It sees the result (call->inner) as a matrix: the
 * columns are the innermost axis, of stride 1; the rows are all other axes; row r starts at element r * columns. Every
 * other operand of the map is a scalar, has one value per column, or is a matrix of the same strides. */
struct ln_epilogue {
    const ln_map_attributes *map; /* the map node that was fused */
    int tile_input;               /* which input of the map is the op's result */
    int n_inputs; /* inputs of the map; except tile_input, input i is call->inputs[call->n_inputs + operand[i]] */
    int operand[LN_MAX_OPERANDS];
    bool clamp_only; /* the map is min(max(x, low), high) to f32, which kernels may do in registers */
    /* If the map only adds one f32 operand as large as the result and then clamps: the number of this operand among the
     * call's inputs. 0: the map does something else, or adds nothing. Kernels may add it in registers. */
    int residual;
    /* The map is a clamp, or an addition and a clamp as above, but the stored type is f16 or bf16, which is also the
     * type of the operand. ln_epilogue_apply does this in one pass. */
    bool half_sum;
    int half_added;       /* with half_sum: the call's input that is added; 0: none */
    ln_quantized_sum sum; /* set by ln_epilogue_prepare; kernels may do this in registers */
    float low, high;      /* -INFINITY or INFINITY where there is no limit */
    void *program;        /* compiled by ln_epilogue_prepare */
};

#endif
