/* structure_values.h - the values of a structure: shapes, quantization, segments, names of dims. */
#ifndef LN_STRUCTURE_VALUES_H
#define LN_STRUCTURE_VALUES_H

#include "model/structure_reader.h"

/* Whether a zero point is in the range of the (integer) dtype. */
bool ln_zero_fits(int dtype, int32_t zero);

/* The value as a tensor, with the strides of the dense layout if all sizes are known. */
void ln_declared(const ln_value *value, ln_tensor *out);

/* Reads dtype and dims and sets dense strides. `rank` is -1 if the rank is unknown. */
linnet_status ln_read_shape(ln_reader *r, const char *name, int64_t dtype, int64_t rank, const ln_fb_vector *shape,
                            ln_tensor *t);
linnet_status ln_read_quant(ln_reader *r, const char *name, const ln_fb_table *table, int slot, ln_tensor *t);
linnet_status ln_read_segment(ln_reader *r, const char *name, int64_t index, uint64_t bytes, const void **data);
linnet_status ln_read_value(ln_reader *r, const ln_fb_table *table, ln_value *value);
/* Names of open dimensions. ln_read_value has checked that there is one name per dimension. */
linnet_status ln_read_dim_names(ln_reader *r, const ln_fb_vector *tensors, int32_t index, ln_value *value);

#endif
