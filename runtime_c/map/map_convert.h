/* map_convert.h - maps that only convert between dtypes. */
#ifndef LN_MAP_MAP_CONVERT_H
#define LN_MAP_MAP_CONVERT_H

#include "map/map_program.h"

/* cast, quantize and dequantize as map programs. ln_map_run runs them. */
bool ln_convert_can(const ln_call *call);
/* Writes the program into *m, which is zeroed. `quantizes`, for source text: a quantize of the output's own
 * quantization stores with it, also per axis, instead of dividing by a constant before. */
void ln_convert_build(const ln_call *call, ln_convert_program *m, bool quantizes);
linnet_status ln_convert_configure(ln_call *call);

#endif
