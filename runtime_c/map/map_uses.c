/* map_uses.c - finds the values of a compiled map program that need not be in memory: only the next step reads the
 * value, or all its elements are equal. Blocks (map_blocks.inc.c) keep such values in vector registers. */
#include "map/map_uses.h"

#include "map/map_program.h"

static bool reads(const ln_map_step *s, int32_t y) {
    const int arity = ln_map_opcodes[s->code].arity;
    return (arity > 0 && s->a == y) || (arity > 1 && s->b == y) || (arity > 2 && s->c == y);
}

static bool writes(const ln_map_step *s, int32_t y) {
    return s->code != LN_MAP_STORE && s->code != LN_MAP_STORE_QUANTIZED && s->y == y;
}

static bool all_equal(const ln_map_step *steps, int n_steps, const ln_map_view *views, int n_slots, int32_t y) {
    if (y >= n_slots) return true; /* a constant */
    for (int k = 0; k < n_steps; k++)
        if (steps[k].direct == LN_MAP_DIRECT_REPEAT && steps[k].y == y) return views[steps[k].view].rank == 1;
    return false;
}

void ln_map_find_uses(ln_map_step *steps, int n_steps, const ln_map_view *views, int n_slots) {
    for (int k = 0; k < n_steps; k++) {
        ln_map_step *s = &steps[k];
        s->same = ln_map_opcodes[s->code].arity > 1 && all_equal(steps, n_steps, views, n_slots, s->b);
        const bool stores = s->code == LN_MAP_STORE || s->code == LN_MAP_STORE_QUANTIZED;
        s->once = !stores && s->direct == 0;
        for (int j = k + 1; j < n_steps && s->once; j++) {
            if (j > k + 1 && reads(&steps[j], s->y)) s->once = false;
            if (writes(&steps[j], s->y)) break;
        }
    }
}
