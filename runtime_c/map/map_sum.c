/* map_sum.c - recognizes the sum of two 8-bit tensors in a map program. */
#include "map/map_sum.h"

#include "map/map_compile.h"
#include "map/map_shape.h"

typedef struct matcher {
    const ln_map_source *source;
    int64_t at; /* the instruction that is looked at */
} matcher;

static const int64_t *instruction(const matcher *m) { return m->source->map->program.v + m->at * LN_MAP_WORDS; }

static bool integer(const matcher *m, int opcode) {
    const int64_t *in = instruction(m);
    return in[0] == opcode && in[1] == LINNET_I32;
}

/* If the instruction is `opcode` with a constant as its second operand, stores the constant and moves to the first. */
static bool with_constant(matcher *m, int opcode, int32_t *value) {
    const int64_t *in = instruction(m);
    int32_t both[2];
    if (!integer(m, opcode) || !ln_map_constant_value(m->source, in[3], both)) return false;
    *value = both[0];
    m->at = in[2];
    return true;
}

static bool multiplied(matcher *m, int32_t *multiplier, int32_t *right) {
    const int64_t *in = instruction(m), *integers = m->source->map->integers.v;
    if (!integer(m, LN_MAP_FIXED_MULTIPLY)) return false;
    *multiplier = (int32_t)integers[in[3]];
    *right = (int32_t)integers[in[4]];
    m->at = in[2];
    return *right >= 0 && *right <= 31;
}

/* A multiplier of 1/2 without a shift only halves the factor, which is even. It is the multiplier of the operand with
 * the larger scale. */
static bool halves(const ln_map_term *t) { return t->multiplier == 1 << 30 && t->right == 0; }

/* Matches ((x - zero) * factor).fixed_multiply(multiplier, right) at instruction `at`. */
static bool match_term(const ln_map_source *source, int64_t at, int dtype, ln_map_term *t) {
    matcher m = {source, at};
    const int32_t turn = dtype == LINNET_I8 ? 0 : 128;
    if (!multiplied(&m, &t->multiplier, &t->right) || !with_constant(&m, LN_MAP_MUL, &t->factor) ||
        !with_constant(&m, LN_MAP_SUB, &t->zero) || !integer(&m, LN_MAP_LOAD))
        return false;
    t->operand = (int32_t)instruction(&m)[2];
    t->zero -= turn;
    const int32_t unit = 1 << LN_MAP_SUM_SHIFT, most = 32 * unit;
    return t->factor % (2 * unit) == 0 && t->factor <= most && t->factor >= -most && t->zero >= INT8_MIN &&
           t->zero <= INT8_MAX;
}

bool ln_map_find_sum(const ln_map_source *source, const ln_map_program *p, ln_map_sum *sum) {
    const ln_map_attributes *map = source->map;
    const int dtype = source->outputs[0].dtype;
    const int32_t low = dtype == LINNET_I8 ? INT8_MIN : 0, high = dtype == LINNET_I8 ? INT8_MAX : UINT8_MAX;
    matcher m = {source, map->program.n / LN_MAP_WORDS - 1};
    if ((dtype != LINNET_I8 && dtype != LINNET_U8) || source->n_outputs != 1 || p->n_views != 3) return false;
    for (int i = 0; i < p->n_views; i++) {
        const ln_map_view *v = &p->views[i];
        if (v->dtype != dtype || v->rank != 1 || v->strides[0] != 1 || v->operand < 0 || v->iota) return false;
    }
    if (!integer(&m, LN_MAP_STORE)) return false;
    m.at = instruction(&m)[2];
    if (!with_constant(&m, LN_MAP_MIN, &sum->high) || !with_constant(&m, LN_MAP_MAX, &sum->low) ||
        !with_constant(&m, LN_MAP_ADD, &sum->zero) || !multiplied(&m, &sum->multiplier, &sum->right) ||
        !integer(&m, LN_MAP_ADD))
        return false;
    ln_map_term *a = &sum->halved, *b = &sum->scaled;
    const int64_t first = instruction(&m)[2], second = instruction(&m)[3];
    if (!match_term(source, first, dtype, a) || !match_term(source, second, dtype, b)) return false;
    if (!halves(a)) {
        const ln_map_term other = *a;
        *a = *b, *b = other;
    }
    if (halves(b)) b->factor *= 2, b->right = 1; /* the same product, so that every shift is at least 1 */
    a->factor /= 2;
    sum->turn = dtype == LINNET_I8 ? 0 : 128;
    return halves(a) && b->right > 0 && sum->right > 0 && sum->low >= low && sum->high <= high &&
           sum->low <= sum->high && sum->zero >= -255 && sum->zero <= 255;
}
