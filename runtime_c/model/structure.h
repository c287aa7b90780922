/* structure.h - reads the flatbuffer of a file into the verified structs of graph.h.
 * The planner and the kernels may trust everything that passes here: indices, sizes, enums, programs, the order of
 * nodes. */
#ifndef LN_STRUCTURE_H
#define LN_STRUCTURE_H

#include "model/graph.h"

/* Fills the functions, signatures, variables, segments and metadata of the model from the structure, a private
 * 16-byte-aligned copy in the model's pool. Segments refer to model->file. Errors: CORRUPT, UNSUPPORTED, BAD_ATTRIBUTE,
 * TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_read_structure(linnet_model *model, const void *structure, size_t size, linnet_error *error);

#endif
