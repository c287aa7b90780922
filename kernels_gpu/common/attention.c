/* attention.c - scaled dot-product attention (the op `attention`), whose scores are never stored. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

#include <math.h>

enum { QUERY, KEY, VALUE, MASK, LENGTHS, PAST_KEY, PAST_VALUE, OPERANDS };
enum { NONE, START, END }; /* values of the attribute causal */
enum { ITEMS = 256, KEYS = 64, DEPTH = 16, MOST_VALUES = 16 };

/* The tile of a work group of 16 x 16 items: query rows of each item, and columns of values of each item. */
typedef struct tile {
    int rows, values;
} tile;

/* Returns the size of a dimension; from_end 1 is the last one. A dimension that the tensor does not have has size 1. */
static int64_t size_of(const linnet_device_tensor *t, int from_end) {
    return t->rank >= from_end ? t->shape[t->rank - from_end] : 1;
}

static size_t local_bytes(const tile *t) {
    const int queries = 16 * t->rows, panel = t->values > 4 ? 16 * t->values : KEYS;
    return (size_t)(DEPTH * (queries + panel) + queries * (KEYS + 4) + ITEMS) * sizeof(float);
}

/* Chooses a tile whose sizes are powers of two, so that many shapes share a program. */
static tile tile_of(const lg_step *s) {
    const linnet_device_tensor *y = &s->outputs[0];
    const int64_t m = size_of(y, 2), size = size_of(y, 1);
    tile t = {m <= 16 ? 1 : m <= 32 ? 2 : 4, 1};
    while (16 * t.values < size && t.values < MOST_VALUES) t.values *= 2;
    while (t.rows > 1 && local_bytes(&t) > s->machine->local_bytes) t.rows /= 2;
    return t;
}

bool lg_can_attention(const lg_step *s) {
    if (!lg_is_float(s->inputs[QUERY].dtype) || !lg_can_store(s) || lg_count(&s->outputs[0]) == 0) return false;
    for (int i = 0; i < s->n_inputs; ++i)
        if (!lg_absent(s, i) && lg_count(&s->inputs[i]) > INT32_MAX) return false;
    const tile t = tile_of(s);
    return s->machine->most_items >= ITEMS && s->machine->local_bytes >= local_bytes(&t);
}

/* Defines the dtypes of the operands and passes the operands. In place of an absent operand it passes the query, which
 * the kernel then does not read. */
static void pass_operands(const lg_step *s, lg_launch *launch) {
    lg_define_operand(launch, "Q", s->inputs[QUERY].dtype);
    lg_define_operand(launch, "MASK", s->inputs[lg_absent(s, MASK) ? QUERY : MASK].dtype);
    lg_define_operand(launch, "LENGTH", lg_absent(s, LENGTHS) ? LINNET_I32 : s->inputs[LENGTHS].dtype);
    for (int i = 0; i < OPERANDS; ++i) lg_pass(launch, LG_INPUT, lg_absent(s, i) ? QUERY : i);
    lg_pass(launch, LG_OUTPUT, 0);
}

/* Passes the kernel's numbers in the order of its parameters. */
static void pass_numbers(const lg_step *s, const lg_plan *plan, lg_launch *launch) {
    const linnet_device_tensor *q = &s->inputs[QUERY], *k = &s->inputs[KEY], *mask = &s->inputs[MASK];
    const bool turned = lg_integer(s, "key_transposed", 0) != 0, masked = !lg_absent(s, MASK);
    const int64_t n = size_of(&s->inputs[VALUE], 2), depth = size_of(q, 1);
    const int64_t past = lg_absent(s, PAST_VALUE) ? 0 : size_of(&s->inputs[PAST_VALUE], 2);
    const int64_t matrices = lg_shape_product(&s->outputs[0], 0, s->outputs[0].rank - 2);
    /* Whether each entry along the first axis has its own length. */
    const bool each = !lg_absent(s, LENGTHS) && s->inputs[LENGTHS].shape[0] > 1;
    const int64_t numbers[] = {(int64_t)plan->status,
                               size_of(q, 2),
                               n,
                               past,
                               depth,
                               size_of(&s->inputs[VALUE], 1),
                               turned ? size_of(k, 1) : 1,
                               turned ? 1 : depth,
                               turned ? past : 1,
                               turned ? 1 : depth,
                               masked && size_of(mask, 2) != 1 ? size_of(mask, 1) : 0,
                               masked && size_of(mask, 1) != 1,
                               each ? matrices / s->inputs[LENGTHS].shape[0] : matrices,
                               lg_integer(s, "window", 0)};
    const double scale = lg_real(s, "scale", 0);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
        lg_pass_integer(launch, numbers[i] < INT32_MAX ? numbers[i] : INT32_MAX);
    lg_pass_real(launch, scale != 0 ? scale : depth > 0 ? 1 / sqrt((double)depth) : 1);
    lg_pass_real(launch, lg_real(s, "cap", 0));
}

static void put_places(const lg_step *s, lg_launch *launch) {
    static const char *const names[] = {"BATCH_Q", "BATCH_K",      "BATCH_V",     "BATCH_MASK",
                                        NULL,      "BATCH_PAST_K", "BATCH_PAST_V"};
    const linnet_device_tensor *y = &s->outputs[0];
    for (int i = 0; i < OPERANDS; ++i) {
        const int outer = lg_absent(s, i) || s->inputs[i].rank < 2 ? 0 : s->inputs[i].rank - 2;
        if (names[i] != NULL && !lg_absent(s, i)) lg_put_batch(launch, names[i], &s->inputs[i], outer, y, y->rank - 2);
    }
}

void lg_build_attention(const lg_step *s, lg_plan *plan) {
    const linnet_device_tensor *y = &s->outputs[0];
    const tile t = tile_of(s);
    lg_launch *launch = lg_add(plan, "lg_attention");
    if (launch == NULL) return;
    lg_define(launch, "ROWS", t.rows);
    lg_define(launch, "VALUES", t.values);
    lg_define(launch, "MASKED", lg_absent(s, MASK) ? 0 : s->inputs[MASK].dtype == LINNET_BOOL ? 1 : 2);
    lg_define(launch, "LENGTHS", !lg_absent(s, LENGTHS));
    lg_define(launch, "PAST", !lg_absent(s, PAST_KEY));
    lg_define(launch, "CAUSAL", lg_integer(s, "causal", NONE));
    lg_define(launch, "WINDOW", lg_integer(s, "window", 0) > 0);
    lg_define(launch, "CAP", lg_real(s, "cap", 0) > 0);
    pass_operands(s, launch);
    if (!lg_absent(s, LENGTHS))
        lg_check_indices(plan, size_of(&s->inputs[lg_absent(s, PAST_VALUE) ? VALUE : PAST_VALUE], 2) + 1);
    lg_pass(launch, LG_PACKED, 0);
    pass_numbers(s, plan, launch);
    put_places(s, launch);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, "attention");
    const int64_t queries = 16 * t.rows, columns = 16 * t.values;
    lg_range(launch, (size_of(y, 2) + queries - 1) / queries * ITEMS, (size_of(y, 1) + columns - 1) / columns,
             lg_shape_product(y, 0, y->rank - 2));
    lg_local(launch, ITEMS, 1, 1);
}
