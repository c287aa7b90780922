/* structure_errors.h - reports errors of a structure. Each function fills the error record and returns its status. */
#ifndef LN_STRUCTURE_ERRORS_H
#define LN_STRUCTURE_ERRORS_H

#include "model/structure_reader.h"

/* Reports the problem of the flatbuffer as CORRUPT. Returns `otherwise` if the flatbuffer has no problem. */
linnet_status ln_structure_problem(const ln_fb *fb, linnet_status otherwise, linnet_error *error);

/* Report that the item `name` is wrong (CORRUPT). `got` is the wrong number; `kind` is the noun before that number, as
 * in "segment 3". */
linnet_status ln_reader_corrupt_number(ln_reader *r, const char *name, const char *what, const char *kind, int64_t got);
linnet_status ln_reader_corrupt(ln_reader *r, const char *name, const char *what, int64_t got);
/* Reports OUT_OF_MEMORY. */
linnet_status ln_reader_no_memory(ln_reader *r);
/* Reports the problem of the flatbuffer as CORRUPT. Returns LINNET_OK if there is no problem. */
linnet_status ln_reader_problem(ln_reader *r);

#endif
