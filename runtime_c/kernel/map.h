/* map.h - pointwise register programs, either as a node or as the epilogue of a heavy op.
 * The strip interpreter is in runtime_c/map/map_strip.inc.c (compiled per ISA level); the reference is in
 * runtime_c/ops/map.c. */
#ifndef LN_MAP_H
#define LN_MAP_H

#include "kernel/kernel.h"

/* A residual of quantized graphs: an operand as large as the result is dequantized, unless it is f32, and added to the
 * f32 result, then the sum is limited and quantized. If the op's own result is i8 or u8, that is dequantized first, and
 * there may be no operand: then it only gets another scale. With `words`, there may be no operand of an f32 result
 * either. */
typedef struct ln_quantized_sum {
    bool used;     /* false: the epilogue is something else */
    bool words;    /* an f32 result: the stored integer or the operand has 16 bits, or there is no operand */
    int input;     /* the call's input that is added, i8, u8, i16 or f32; 0: none */
    uint8_t dtype; /* of this input */
    uint8_t tile;  /* dtype of the op's own result: f32, i8 or u8 */
    uint8_t y_dtype;
    int32_t zero, y_zero; /* of the operand; of the stored integer */
    float scale, y_scale, y_inverse;
    float low, high; /* of the sum, finite */
    /* If `tile` is i8 or u8: the scale of the op's result. In units of the stored integer, the sum is close to
     * (result - its zero) * factor + other * other_factor + constant, at most `error` off the sum in f32 whose
     * quotient is rounded. u8 is less 128 here. */
    float tile_scale, factor, other_factor, constant, error;
    int32_t y_low, y_high; /* limits of the stored integer */
} ln_quantized_sum;

/* The op's result as a matrix: columns are its innermost axis (stride 1), rows are all other axes, and row r starts at
 * r * columns of inner. Every extra operand is a scalar, one value per column, or a matrix of the same strides. */
struct ln_epilogue {
    const ln_map_attributes *map; /* the map node that was fused */
    int tile_input;               /* which input of the map is the op's result */
    int n_inputs; /* number of inputs of the map; input i != tile_input is extra operand number operand[i] */
    int operand[LN_MAX_OPERANDS];
    bool clamp_only; /* the map is min(max(x, low), high) to f32, which kernels may do in registers */
    /* The call's input that is added to the result before the limits, f32 and as large as the result, if the map does
     * nothing else; 0: none. A kernel may do this in registers. */
    int residual;
    /* The same map to f16 or bf16, and the residual has this type, too. ln_epilogue_apply does it in one pass. */
    bool half_sum;
    int half_added;       /* the call's input that is added; 0: none */
    ln_quantized_sum sum; /* after ln_epilogue_prepare; a kernel may do this in registers */
    float low, high;      /* -INFINITY or INFINITY where there is no limit */
    void *program;        /* compiled by ln_epilogue_prepare */
};

#endif
