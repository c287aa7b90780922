/* epilogue.h - applies an epilogue to a tile of results. */
#ifndef LN_EPILOGUE_H
#define LN_EPILOGUE_H

#include "kernel/map.h"

/* Applies the epilogue to a tile: rows [row, row + rows) and columns [column, column + columns) of the op's f32 result.
 * The tile is in `tile`, with `tile_stride` elements from row to row. The result is stored into b->outputs[0] (any
 * dtype). Thread-safe; uses only the stack. `tile` may be the output itself if the output is f32 and there are no extra
 * operands. The plan may place the output over an operand that is no longer needed, because each element is read before
 * it is written. Without an epilogue (call->epilogue NULL) it only converts and stores. */
void ln_epilogue_apply(const ln_call *call, const ln_buffers *b, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, const float *tile, int64_t tile_stride);

#endif
