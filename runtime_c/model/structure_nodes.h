/* structure_nodes.h - the functions of a structure and their nodes. */
#ifndef LN_STRUCTURE_NODES_H
#define LN_STRUCTURE_NODES_H

#include "model/structure_reader.h"

/* Reads the functions; `tables` is their list. */
linnet_status ln_read_functions(ln_reader *r, const ln_fb_vector *tables);

#endif
