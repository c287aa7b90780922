/* map_convert.h - runs cast, quantize and dequantize as map programs, with the interpreter of maps (ln_map_run). */
#ifndef LN_MAP_MAP_CONVERT_H
#define LN_MAP_MAP_CONVERT_H

#include "map/map_program.h"

/* The functions `can` and `configure` of these kernels. */
bool ln_convert_can(const ln_call *call);
/* Writes the program of the call into *m, which must be zeroed and must stay where it is. `quantizes` matters only for
 * a quantize without operands for scale and zero point, which uses the quantization of the output tensor. With
 * `quantizes`, its program is one quantized store, which may have a scale per channel; source text for devices needs
 * this form. Without `quantizes`, the program divides by a constant and then stores. */
void ln_convert_build(const ln_call *call, ln_convert_program *m, bool quantizes);
linnet_status ln_convert_configure(ln_call *call);

#endif
