/* structure_nodes.h - the functions of a structure and their nodes. */
#ifndef LN_STRUCTURE_NODES_H
#define LN_STRUCTURE_NODES_H

#include "model/structure_reader.h"

/* Reads all functions, whose tables are the elements of `tables`, into r->functions. The variables and segments must
 * have been read before. Errors: those of ln_read_structure. */
linnet_status ln_read_functions(ln_reader *r, const ln_fb_vector *tables);

#endif
