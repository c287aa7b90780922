/* epilogue.h - applies an epilogue to a tile of results. */
#ifndef LN_EPILOGUE_H
#define LN_EPILOGUE_H

#include "kernel/map.h"

/* Applies the epilogue to a tile: rows [row, row + rows) and columns [column, column + columns) of the op's f32 result.
 * `tile` holds these elements, with `tile_stride` elements from row to row. The results are stored in b->outputs[0], of
 * any dtype. Without an epilogue (call->epilogue NULL), the elements are only converted and stored. With one,
 * ln_epilogue_prepare must have succeeded in `configure`.
 *
 * `tile` may be the output itself if the output is f32 and there are no extra operands. The output may share its memory
 * with an operand, because each element is read before it is written. Uses only the stack, so threads may call this for
 * different tiles at the same time. */
void ln_epilogue_apply(const ln_call *call, const ln_buffers *b, int64_t row, int64_t rows, int64_t column,
                       int64_t columns, const float *tile, int64_t tile_stride);

#endif
