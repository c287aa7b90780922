/* map_epilogue.h - the planned epilogue of a heavy op. map/map_epilogue.c creates it; fast/gemm/epilogue.c applies it
 * to the tiles of the op's result. */
#ifndef LN_MAP_EPILOGUE_H
#define LN_MAP_EPILOGUE_H

#include "map/map_program.h"

#define LN_EPILOGUE_VIEWS 24
#define LN_EPILOGUE_BYTES 16384 /* limit of the stack that strips use */

/* How an operand maps to the matrix of the result. */
enum ln_epilogue_kind {
    LN_EPILOGUE_SCALAR,
    LN_EPILOGUE_COLUMN,
    LN_EPILOGUE_MATRIX,
    LN_EPILOGUE_TILE,
    LN_EPILOGUE_FIXED,
    LN_EPILOGUE_UNFIT
};

typedef struct ln_epilogue_plan {
    ln_map_program *program;
    const ln_map_isa *isa;
    int64_t columns;               /* of the whole result */
    const ln_map_step *activation; /* all that the map does, from f32 to f32; NULL: it does something else */
    uint8_t kinds[LN_EPILOGUE_VIEWS];
    int16_t inputs[LN_EPILOGUE_VIEWS]; /* index into b->inputs; -1: output, -2: fixed data */
} ln_epilogue_plan;

/* Whether the map can be an epilogue for these inputs. Input number tile_input is `inner`. The map must have one
   output, of the shape and strides of inner, and every other operand must be of a kind listed above. */
bool ln_epilogue_fits(const ln_map_attributes *map, const ln_tensor *inputs, int n_inputs, int tile_input,
                      const ln_tensor *inner, const ln_tensor *output);
/* Sets clamp_only, low and high, which is all that `can` and `cost` of a kernel read. */
void ln_epilogue_describe(ln_epilogue *epilogue, const ln_call *call);
/* Does the same, and compiles `program` into memory of ln_call_state. */
linnet_status ln_epilogue_prepare(ln_epilogue *epilogue, ln_call *call);

#endif
