/* map_source.h - the program of a map as C text, for devices. */
#ifndef LN_MAP_MAP_SOURCE_H
#define LN_MAP_MAP_SOURCE_H

#include "map/source_text.h"

/* Writes a block of one statement, which has no semicolon yet. */
void ln_source_block(int language, const char *statement, char *text, size_t size, size_t *length);
/* The type of a stored element. */
const char *ln_source_element(int dtype);

#endif
