/* structure_reader.h - shared by structure*.c: what has been read of a structure so far, and how its parts are read. */
#ifndef LN_STRUCTURE_READER_H
#define LN_STRUCTURE_READER_H

#include "model/structure.h"

typedef struct ln_reader {
    linnet_model *model;
    ln_pool *pool;     /* the model's pool */
    ln_pool temporary; /* freed at the end */
    ln_fb fb;
    ln_function *functions;
    uint64_t *expanded; /* nodes per function after expansion */
    int32_t *depth;     /* levels of calls below each function */
    int32_t *assigned;  /* per variable: 1 + the function that assigned it last */
    int32_t n_functions;
    linnet_error *error;
} ln_reader;

/* ---- structure_errors.c */
/* CORRUPT. `name` is the name of the item; `kind` says what the number `got` counts, as in "segment 3". */
linnet_status ln_reader_corrupt_number(ln_reader *r, const char *name, const char *what, const char *kind, int64_t got);
linnet_status ln_reader_corrupt(ln_reader *r, const char *name, const char *what, int64_t got);
linnet_status ln_reader_no_memory(ln_reader *r);
linnet_status ln_reader_problem(ln_reader *r); /* OK if the flatbuffer has none */

/* ---- structure_values.c */
/* Reads dtype and dims and sets dense strides. `rank` is -1 if the rank is unknown. */
linnet_status ln_read_shape(ln_reader *r, const char *name, int64_t dtype, int64_t rank, const ln_fb_vector *shape,
                            ln_tensor *t);
linnet_status ln_read_quant(ln_reader *r, const char *name, const ln_fb_table *table, int slot, ln_tensor *t);
linnet_status ln_read_segment(ln_reader *r, const char *name, int64_t index, uint64_t bytes, const void **data);
linnet_status ln_read_value(ln_reader *r, const ln_fb_table *table, ln_value *value);
/* Names of open dimensions. ln_read_value has checked that there is one name per dimension. */
linnet_status ln_read_dim_names(ln_reader *r, const ln_fb_vector *tensors, int32_t index, ln_value *value);

/* ---- structure_nodes.c: `tables` is the list of functions */
linnet_status ln_read_functions(ln_reader *r, const ln_fb_vector *tables);

#endif
