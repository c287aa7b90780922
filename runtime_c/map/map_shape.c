/* map_shape.c - facts about a map program that the shape rule, the reference and the compiler share.
 * They depend only on the program's words. */
#include "map/map_shape.h"

bool ln_map_broadcasts(const ln_map_attributes *map, int input) {
    bool table = false;
    for (int64_t k = 0; k + LN_MAP_WORDS <= map->program.n; k += LN_MAP_WORDS) {
        const int64_t *in = map->program.v + k;
        if ((in[0] == LN_MAP_LOAD || in[0] == LN_MAP_LOAD_DEQUANTIZED) && in[2] == input) return true;
        table = table || (in[0] == LN_MAP_TABLE && in[3] == input);
    }
    return !table;
}

int ln_map_result_type(const int64_t *instruction) {
    return instruction[0] >= LN_MAP_EQ && instruction[0] <= LN_MAP_IS_INF ? LINNET_I32 : (int)instruction[1];
}
