/* map_uses.h - where the registers of a program are used last. */
#ifndef LN_MAP_MAP_USES_H
#define LN_MAP_MAP_USES_H

#include "map/map_program.h"

/* Sets `once` and `same` in all steps. */
void ln_map_find_uses(ln_map_step *steps, int n_steps, const ln_map_view *views, int n_slots);

#endif
