/* structure_values.h - the values of a structure: shapes, quantization, segments, names of dims. */
#ifndef LN_STRUCTURE_VALUES_H
#define LN_STRUCTURE_VALUES_H

#include "model/structure_reader.h"

/* Tells whether a zero point is in the range of the integer dtype. */
bool ln_zero_fits(int dtype, int32_t zero);

/* Describes the value as a tensor, with the strides of the dense layout if all dims are known. */
void ln_declared(const ln_value *value, ln_tensor *out);

/* This function and the next ones read parts of a value and verify them; `name` is the value's name for errors. This
 * one reads dtype and dims, and sets dense strides. `rank` is -1 if the rank is unknown. Errors of all: CORRUPT,
 * TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_read_shape(ln_reader *r, const char *name, int64_t dtype, int64_t rank, const ln_fb_vector *shape,
                            ln_tensor *t);
/* Reads the quantization in this slot of the table; t->quant stays NULL if the table has none. Needs the shape. */
linnet_status ln_read_quant(ln_reader *r, const char *name, const ln_fb_table *table, int slot, ln_tensor *t);
/* Stores the address of a constant's value. The segment must have exactly `bytes` bytes. */
linnet_status ln_read_segment(ln_reader *r, const char *name, int64_t index, uint64_t bytes, const void **data);
/* Reads all of a value except the names of its dimensions. */
linnet_status ln_read_value(ln_reader *r, const ln_fb_table *table, ln_value *value);
/* Reads the names of dimensions of the value with this index, which is an input. ln_read_value has checked that the
 * file has one name per dimension, or none. */
linnet_status ln_read_dim_names(ln_reader *r, const ln_fb_vector *tensors, int32_t index, ln_value *value);

#endif
