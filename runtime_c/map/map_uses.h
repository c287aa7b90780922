/* map_uses.h - finds registers whose values need not be in memory. */
#ifndef LN_MAP_MAP_USES_H
#define LN_MAP_MAP_USES_H

#include "map/map_program.h"

/* Sets `once` and `same` in all steps of a compiled program. Registers from n_slots on are constants. */
void ln_map_find_uses(ln_map_step *steps, int n_steps, const ln_map_view *views, int n_slots);

#endif
