/* attention.c - finds attention in consecutive steps, softmax(f(q k^T)) v, and plans its kernel (attention.inc): a
 * product with an epilogue, or a product and perhaps a map; a softmax; a product. */
#include "kernels_gpu/common/attention.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 4, ITEMS = 256, KEYS = 64, DEPTH = 16, FEW_QUERIES = 8, MOST_VALUES = 256 };

typedef struct attention {
    lg_step steps[MOST_STEPS];
    int count;
    int score; /* the step whose map or epilogue changes the scores */
    int64_t matrices, m, n, depth, values;
    int64_t q_m, q_k, k_k, k_n, v_k, v_n; /* strides */
} attention;

/* A product of floats without a bias. */
static bool is_product(const lg_step *s) {
    const linnet_device_tensor *a = &s->inputs[0], *b = &s->inputs[1];
    return strcmp(s->op, "matmul") == 0 && s->n_inputs >= 2 && lg_absent(s, 2) && lg_is_float(a->dtype) &&
           b->dtype == a->dtype && a->rank >= 2 && b->rank >= 2 && lg_count(a) <= INT32_MAX && lg_count(b) <= INT32_MAX;
}

/* Whether the only reader of the step's result, which is its only output, is operand `input` of the other step. */
static bool feeds(const lg_step *from, const lg_step *to, int input) {
    const linnet_device_tensor *y = &from->outputs[0];
    for (int i = 0; i < to->n_inputs; ++i) {
        const bool same = to->inputs[i].dtype != LINNET_NONE && to->inputs[i].value == y->value;
        if (same != (i == input)) return false;
    }
    return from->n_outputs == 1 && y->readers == 1 && lg_same_shape(y, &to->inputs[input]);
}

/* The operand of a map that is the result of the step and has the map's shape; -1: there is none. */
static int32_t score_of(const lg_step *from, const lg_step *map) {
    for (int i = 0; i < map->n_inputs; ++i)
        if (feeds(from, map, i) && map->n_outputs == 1 && lg_same_shape(&map->outputs[0], &map->inputs[i])) return i;
    return -1;
}

static bool is_softmax(const lg_step *s) {
    const linnet_device_tensor *x = &s->inputs[0];
    return strcmp(s->op, "softmax") == 0 && lg_is_float(x->dtype) && lg_integer(s, "log", 0) == 0 &&
           lg_axis(lg_integer(s, "axis", -1), x->rank) == x->rank - 1;
}

/* The sizes of the two products. False: they are not those of one attention per matrix. */
static bool measure(attention *a) {
    const lg_step *first = &a->steps[0], *last = &a->steps[a->count - 1];
    const linnet_device_tensor *q = &first->inputs[0], *v = &last->inputs[1];
    const linnet_device_tensor *scores = &first->result, *y = &last->outputs[0];
    const bool tq = lg_integer(first, "transpose_a", 0) != 0, tk = lg_integer(first, "transpose_b", 0) != 0;
    const bool tv = lg_integer(last, "transpose_b", 0) != 0;
    if (lg_integer(last, "transpose_a", 0) != 0 || y->rank != scores->rank || lg_count(y) == 0) return false;
    if (memcmp(y->shape, scores->shape, (size_t)(y->rank - 2) * sizeof *y->shape) != 0) return false;
    a->m = scores->shape[scores->rank - 2], a->n = scores->shape[scores->rank - 1];
    a->values = y->shape[y->rank - 1], a->depth = q->shape[q->rank - (tq ? 2 : 1)];
    a->matrices = lg_shape_product(y, 0, y->rank - 2);
    a->q_m = tq ? 1 : a->depth, a->q_k = tq ? a->m : 1;
    a->k_k = tk ? 1 : a->n, a->k_n = tk ? a->depth : 1;
    a->v_k = tv ? 1 : a->values, a->v_n = tv ? a->n : 1;
    return v->rank >= 2 && a->n > 0 && a->depth > 0 && a->values <= MOST_VALUES;
}

/* Rows of a work item, of which 16 are below each other. */
static int rows_of(const attention *a) { return a->m <= 16 ? 1 : a->m <= 32 ? 2 : 4; }
/* Columns of values of an item: a power of two, so that sizes share programs. */
static int values_of(const attention *a) {
    int values = 1;
    while (16 * values < a->values) values *= 2;
    return values;
}

static bool fits(const attention *a, const lg_machine *m) {
    const bool asked = strcmp(m->prefer, "attention") == 0;
    const int queries = 16 * rows_of(a), panel = values_of(a) > 4 ? 16 * values_of(a) : KEYS;
    const size_t floats = (size_t)(DEPTH * (queries + panel) + queries * (KEYS + 4) + ITEMS);
    if (m->most_items < ITEMS || m->local_bytes < floats * sizeof(float)) return false;
    return asked || (!m->is_cpu && a->m >= FEW_QUERIES);
}

static bool match(attention *a, const lg_machine *machine, const linnet_step *const *steps, int count) {
    lg_step *s = a->steps;
    if (count < 3 || strcmp(machine->host->step_op(steps[0]), "matmul") != 0) return false;
    if (!lg_step_open(&s[0], machine, steps[0]) || !is_product(&s[0]) || !lg_can_store(&s[0])) return false;
    if (!lg_step_open(&s[1], machine, steps[1])) return false;
    a->count = 3, a->score = 0;
    if (strcmp(s[1].op, "map") == 0) {
        s[1].map.result = score_of(&s[0], &s[1]);
        if (count < 4 || s[0].has_epilogue || s[1].map.result < 0 || !lg_can_store(&s[1])) return false;
        s[1].result = s[1].inputs[s[1].map.result];
        a->count = 4, a->score = 1;
        if (!lg_step_open(&s[2], machine, steps[2])) return false;
    }
    const int softmax = a->count - 2;
    if (!lg_step_open(&s[a->count - 1], machine, steps[a->count - 1])) return false;
    const lg_step *last = &s[a->count - 1];
    if (!lg_is_float(s[a->score].outputs[0].dtype) || !lg_is_float(s[a->score].result.dtype)) return false;
    if (!is_softmax(&s[softmax]) || !feeds(&s[softmax - 1], &s[softmax], 0)) return false;
    if (!is_product(last) || last->has_epilogue || !feeds(&s[softmax], last, 0) || !lg_can_store(last)) return false;
    return last->outputs[0].dtype == last->inputs[1].dtype && measure(a) && fits(a, machine);
}

static void build(const attention *a, lg_plan *plan) {
    static const char *const names[] = {"Q", "K", "V"};
    const lg_step *first = &a->steps[0], *last = &a->steps[a->count - 1];
    const linnet_device_tensor *operands[] = {&first->inputs[0], &first->inputs[1], &last->inputs[1]};
    const int rows = rows_of(a), y_outer = first->result.rank - 2;
    lg_launch *launch = lg_add(plan, "lg_attention");
    if (launch == NULL) return;
    lg_define(launch, "ROWS", rows);
    lg_define(launch, "VALUES", values_of(a));
    for (int i = 0; i < 3; ++i) {
        lg_define_operand(launch, names[i], operands[i]->dtype);
        launch->step = i < 2 ? 0 : a->count - 1;
        lg_pass(launch, LG_INPUT, i < 2 ? i : 1);
    }
    lg_define_operand(launch, "Y", last->outputs[0].dtype);
    lg_pass(launch, LG_OUTPUT, 0);
    const int64_t numbers[] = {a->m, a->n, a->depth, a->values, a->q_m, a->q_k, a->k_k, a->k_n, a->v_k, a->v_n};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_put_batch(launch, "BATCH_Q", operands[0], operands[0]->rank - 2, &first->result, y_outer);
    lg_put_batch(launch, "BATCH_K", operands[1], operands[1]->rank - 2, &first->result, y_outer);
    lg_put_batch(launch, "BATCH_V", operands[2], operands[2]->rank - 2, &last->outputs[0], y_outer);
    launch->step = a->score;
    lg_put_score(plan, launch, &a->steps[a->score]);
    lg_put_file(launch, "attention");
    lg_range(launch, (a->m + 16 * rows - 1) / (16 * rows) * ITEMS, 1, a->matrices);
    lg_local(launch, ITEMS, 1, 1);
    plan->failed |= launch->source.failed;
}

int lg_match_attention(const lg_machine *machine, const linnet_step *const *steps, int count, lg_plan *plan,
                       double *cost_ns) {
    attention *a = malloc(sizeof *a);
    const bool found = a != NULL && match(a, machine, steps, count);
    const int steps_of_claim = found ? a->count : 0;
    if (found && plan != NULL) build(a, plan);
    if (found && cost_ns != NULL) {
        const double macs = (double)(a->matrices * a->m * a->n) * (double)(a->depth + a->values);
        *cost_ns = machine->launch_ns + macs / (0.4 * machine->macs);
    }
    free(a);
    return steps_of_claim;
}
