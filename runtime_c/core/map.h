/* map.h - pointwise register programs: as a node of their own, and as the epilogue of a heavy op.
 * The strip interpreter lives in runtime_c/simd/map_strip.inc.c (compiled per ISA level) and runtime_c/ops/map.c. */
#ifndef LN_MAP_H
#define LN_MAP_H

#include "core/kernel.h"

/* The op's result seen as a matrix: columns are its innermost (stride 1) axis, rows everything else, row r starting at
 * r * columns of inner. Every extra operand is a scalar, one value per column, or a matrix of the same strides. */
struct ln_epilogue {
    const ln_map_attributes *map; /* the map node that was fused */
    int tile_input;               /* which input of the map is the op's result */
    int n_inputs;                 /* inputs of the map; input i != tile_input is extra operand number operand[i] */
    int operand[LN_MAX_OPERANDS];
    bool clamp_only; /* the map is min(max(x, low), high) to f32: kernels may do it in registers */
    float low, high; /* -INFINITY, INFINITY where open */
    void *program;   /* compiled by ln_epilogue_prepare */
};

/* Whether the map (with these inputs; index tile_input is `inner`) can be an epilogue: one output, of the shape and
 * strides of inner, and every other operand of one of the kinds above. */
bool ln_epilogue_fits(const ln_map_attributes *map, const ln_tensor *inputs, int n_inputs, int tile_input,
                      const ln_tensor *inner, const ln_tensor *output);
/* Compiles into memory of ln_call_state; sets clamp_only, low, high, program. */
linnet_status ln_epilogue_prepare(ln_epilogue *epilogue, ln_call *call);
/* Applies it to a tile: rows [row, row + rows) and columns [column, column + columns) of the op's f32 result, which
 * stand in `tile` with `tile_stride` elements from row to row, and stores into b->outputs[0] (any dtype). Thread safe;
 * uses only the stack. tile may be the output itself when that is f32 and there are no extra operands: the plan may lay
 * the output over a dying one, of which each element is read before it is written. Without an epilogue (call->epilogue
 * NULL) it only converts and stores. */
void ln_epilogue_apply(const ln_call *call, const ln_buffers *b, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, const float *tile, int64_t tile_stride);

#endif
