/* structure_errors.h - errors of a structure. */
#ifndef LN_STRUCTURE_ERRORS_H
#define LN_STRUCTURE_ERRORS_H

#include "model/structure_reader.h"

/* CORRUPT with the reader's problem, or `otherwise` when there is none. */
linnet_status ln_structure_problem(const ln_fb *fb, linnet_status otherwise, linnet_error *error);

/* CORRUPT. `name` is the name of the item; `kind` says what the number `got` counts, as in "segment 3". */
linnet_status ln_reader_corrupt_number(ln_reader *r, const char *name, const char *what, const char *kind, int64_t got);
linnet_status ln_reader_corrupt(ln_reader *r, const char *name, const char *what, int64_t got);
linnet_status ln_reader_no_memory(ln_reader *r);
linnet_status ln_reader_problem(ln_reader *r); /* OK if the flatbuffer has none */

#endif
