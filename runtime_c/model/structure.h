/* structure.h - reads the flatbuffer of a file (its structure) into the structs of graph.h, and verifies everything.
 * The planner and the kernels can therefore trust indices, sizes, enums, map programs and the order of nodes. */
#ifndef LN_STRUCTURE_H
#define LN_STRUCTURE_H

#include "model/graph.h"

/* Fills the functions, signatures, variables, segments and metadata of the model. `structure` must be 16-byte aligned,
 * must not change, and must live as long as the model, which points into it. Segments point into model->file, which is
 * set before. After an error, the caller frees the model. Errors: CORRUPT, UNSUPPORTED, BAD_ATTRIBUTE,
 * TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_read_structure(linnet_model *model, const void *structure, size_t size, linnet_error *error);

#endif
