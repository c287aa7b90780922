/* map_epilogue.h - the planned epilogue of a heavy op. map/map_epilogue.c makes the plan; fast/gemm/epilogue.c applies
 * the epilogue to the tiles of the op's result. */
#ifndef LN_MAP_EPILOGUE_H
#define LN_MAP_EPILOGUE_H

#include "map/map_program.h"

#define LN_EPILOGUE_VIEWS 24    /* the largest number of views that a compiled epilogue may have */
#define LN_EPILOGUE_BYTES 16384 /* limit of the stack that strips use */

/* How the operand of a view corresponds to the matrix of the result. SCALAR: one element. COLUMN: one element per
 * column. MATRIX: one element per element. TILE: the op's own result. FIXED: data that was known at plan time. UNFIT:
 * none of these, so the map cannot be an epilogue. */
enum ln_epilogue_kind {
    LN_EPILOGUE_SCALAR,
    LN_EPILOGUE_COLUMN,
    LN_EPILOGUE_MATRIX,
    LN_EPILOGUE_TILE,
    LN_EPILOGUE_FIXED,
    LN_EPILOGUE_UNFIT
};

/* What ln_epilogue.program points to. The arrays have one entry per view of the program. */
typedef struct ln_epilogue_plan {
    ln_map_program *program;
    const ln_map_isa *isa;
    int64_t columns;                   /* number of columns of the whole result */
    const ln_map_step *activation;     /* its step, if the map is only an activation from f32 to f32; else NULL */
    uint8_t kinds[LN_EPILOGUE_VIEWS];  /* ln_epilogue_kind */
    int16_t inputs[LN_EPILOGUE_VIEWS]; /* index into b->inputs; -1: output, -2: fixed data */
} ln_epilogue_plan;

/* Tells whether the map can be an epilogue with these inputs. Input number tile_input is `inner`, the op's own result.
   The map must have one output, with the shape and the strides of inner, and every other operand must be a scalar, a
   column or a matrix (ln_epilogue_kind). */
bool ln_epilogue_fits(const ln_map_attributes *map, const ln_tensor *inputs, int n_inputs, int tile_input,
                      const ln_tensor *inner, const ln_tensor *output);
/* Sets the fields that `can` and `cost` of a kernel read: clamp_only, low, high, residual, half_sum, half_added. The
 * planner calls this before it chooses a kernel. */
void ln_epilogue_describe(ln_epilogue *epilogue, const ln_call *call);
/* Sets the same fields, and `sum`, and compiles `program` into memory of ln_call_state. Call this in `configure`.
 * Errors: UNSUPPORTED, OUT_OF_MEMORY. */
linnet_status ln_epilogue_prepare(ln_epilogue *epilogue, ln_call *call);

#endif
