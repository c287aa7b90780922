/* piece_tables.h - the tables of a piece, as a flatbuffer. */
#ifndef LN_REMOTE_PIECE_TABLES_H
#define LN_REMOTE_PIECE_TABLES_H

#include "remote/flat.h"
#include "remote/piece_graph.h"

/* Tells whether a file can have nodes of this op. */
bool ln_piece_has_op(const char *name);
/* Writes the tables into `flat`, which keeps them. Returns their first byte, and their size in *size; NULL if out of
 * memory. */
const unsigned char *ln_piece_write_tables(const ln_piece_graph *graph, ln_flat *flat, size_t *size);

#endif
