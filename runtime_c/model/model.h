/* model.h - creates models, counts references to them, and writes the header of a file. */
#ifndef LN_MODEL_H
#define LN_MODEL_H

#include "model/graph.h"

/* Writes the LN_HEADER_SIZE bytes of a file's header. `version` is 1, or 2 if the structure has i4, u4 or quantization
 * per block (docs/format.md). */
void ln_write_header(void *header, const void *structure, uint64_t structure_size, uint64_t file_size,
                     uint32_t version);

/* Creates a model without functions, with one reference. linnet_model_free releases a reference. Errors: OUT_OF_MEMORY.
 */
linnet_status ln_model_new(const linnet_allocator *allocator, linnet_model **out, linnet_error *error);
/* Adds a reference and returns the model. Thread-safe. */
linnet_model *ln_model_retain(linnet_model *model);

#endif
