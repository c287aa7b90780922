/* user.c - registers a program's ops with a model, and finds the op that a node of the file names.
 * What a node says is checked here once, so that the functions in ops/user.c need no checks. */
#include "model/user.h"

#include "base/structs.h"
#include "kernel/parts.h"
#include "kernel/user.h"
#include "model/structure_values.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 95, KINDS = LINNET_USER_BYTES + 1 };

static linnet_status bad_op(linnet_error *error, const char *name, const char *expected) {
    ln_fail(error, LINNET_INVALID_ARGUMENT, "the registration of user op '%.95s' is invalid", name ? name : "");
    return ln_expected(error, "%s", expected), LINNET_INVALID_ARGUMENT;
}

linnet_status ln_user_row(const linnet_user_op *from, ln_user_op *row, linnet_error *error) {
    linnet_user_op *host = &row->host;
    if (LN_TAKE(linnet_user_op, run, host, from, error)) return LINNET_INVALID_ARGUMENT;
    const char *name = host->name;
    if (name == NULL || !strchr(name, '.') || strlen(name) > LONGEST_NAME || !ln_is_text(name, strlen(name)))
        return bad_op(error, name, "a name such as \"com.example.crop\" of at most 95 bytes");
    if (host->run == NULL) return bad_op(error, name, "a function `run`");
    if (host->flags & LINNET_USER_OP_DECIDES_SIZES && host->infer == NULL)
        return bad_op(error, name, "a function `infer` for an op that decides sizes");
    if (host->version < 1) return bad_op(error, name, "a version of 1 or more");
    if (host->least_inputs < 0 || (host->most_inputs >= 0 && host->most_inputs < host->least_inputs) ||
        host->least_outputs < 1 || (host->most_outputs >= 0 && host->most_outputs < host->least_outputs))
        return bad_op(error, name, "0 or more inputs, 1 or more outputs, and no maximum below the minimum");
    row->op = ln_ops[LN_OP_USER];
    if (host->flags & LINNET_USER_OP_IN_PLACE) row->op.flags |= LN_OP_IN_PLACE;
    if (host->flags & LINNET_USER_OP_EXACT) row->op.flags &= (uint16_t)~LN_OP_VARIES;
    if (host->flags & LINNET_USER_OP_DECIDES_SIZES) row->op.flags |= LN_OP_DATA_DEPENDENT;
    row->op.absent = (uint16_t)(0xffffu << ln_min(host->least_inputs, 16));
    return LINNET_OK;
}

linnet_status ln_user_register(linnet_model *model, const linnet_model_config *config, linnet_error *error) {
    const int32_t n = config->user_op_count;
    if (n == 0) return LINNET_OK;
    if (!LN_HAS_USER_OPS) return ln_left_out("linnet_model_config.user_ops", "LINNET_USER_OPS", error);
    if (n < 0 || config->user_ops == NULL) return ln_null_argument(error, "linnet_model_config", "user_ops");
    ln_user_op *rows = ln_pool_array(&model->pool, n, sizeof *rows);
    if (rows == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate the user ops of a model");
    for (int32_t i = 0; i < n; ++i) {
        const linnet_status status = ln_user_row(config->user_ops[i], &rows[i], error);
        if (status != LINNET_OK) return status;
        const size_t size = strlen(rows[i].host.name) + 1;
        char *name = ln_pool_alloc(&model->pool, size);
        if (name == NULL) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate the user ops of a model");
        rows[i].host.name = memcpy(name, rows[i].host.name, size);
        for (int32_t k = 0; k < i; ++k)
            if (strcmp(rows[k].host.name, name) == 0) return bad_op(error, name, "no other op with this name");
    }
    model->user_ops = rows;
    model->n_user_ops = n;
    return LINNET_OK;
}

/* Tells whether `text` consists of n texts, each followed by a NUL. If `sizes` gives their sizes, the texts may contain
 * other NULs. */
static bool holds(const ln_text *text, int64_t n, const ln_ints *sizes) {
    int64_t at = 0;
    if (sizes != NULL && sizes->n != n) return false;
    for (int64_t i = 0; i < n; ++i) {
        const char *end = at < text->n ? memchr(text->v + at, 0, (size_t)(text->n - at)) : NULL;
        if (sizes == NULL) {
            if (end == NULL || !ln_is_text(text->v + at, (size_t)(end - text->v - at))) return false;
            at = end - text->v + 1;
        } else {
            if (sizes->v[i] < 0 || sizes->v[i] >= text->n - at || text->v[at + sizes->v[i]] != 0) return false;
            at += sizes->v[i] + 1;
        }
    }
    return at == text->n;
}

/* Tells whether the lists of the node have the lengths that follow from `kinds`. */
static bool consistent(const ln_user_attributes *a) {
    int64_t counts[KINDS] = {0};
    if (a->kinds.n % 2 != 0 || !holds(&a->op, 1, NULL) || !holds(&a->names, a->kinds.n / 2, NULL)) return false;
    for (int64_t i = 0; i < a->kinds.n; i += 2) {
        const int64_t kind = a->kinds.v[i], n = a->kinds.v[i + 1];
        if (kind < 0 || kind >= KINDS || n < -1 || n > INT32_MAX) return false;
        counts[kind] += n < 0 ? 1 : n;
    }
    return counts[LINNET_USER_INTEGERS] == a->integers.n && counts[LINNET_USER_FLOATS] == a->floats.n &&
           holds(&a->text, counts[LINNET_USER_TEXT] + counts[LINNET_USER_BYTES], &a->sizes) && a->version >= 1 &&
           a->version <= INT32_MAX;
}

linnet_status ln_user_check(const void *attributes, linnet_error *error) {
    if (consistent(attributes)) return LINNET_OK;
    ln_fail(error, LINNET_BAD_ATTRIBUTE, "the attributes of a user op are inconsistent");
    return ln_hint(error, "the file is damaged; write it again"), LINNET_BAD_ATTRIBUTE;
}

static linnet_status missing(const ln_user_attributes *a, int32_t version, linnet_error *error) {
    ln_fail(error, LINNET_UNSUPPORTED,
            version ? "the registered user op %.95s is too old"
                    : "the file needs user op %.95s, which is not registered",
            a->op.v);
    ln_expected(error, "version %lld or later of this op", (long long)a->version);
    if (version) ln_got(error, "version %d", (int)version);
    return ln_hint(error, "give the op in linnet_model_config.user_ops"), LINNET_UNSUPPORTED;
}

/* Checks the node against the registration that it will use. */
static linnet_status fits(const linnet_user_op *host, const ln_node *node, const ln_value *values,
                          linnet_error *error) {
    const linnet_status status = ln_user_arity(host, node->n_inputs, node->n_outputs, error);
    if (status != LINNET_OK) return status;
    for (int32_t i = 0; i < host->least_inputs; ++i)
        if (node->inputs[i] < 0)
            return ln_fail(error, LINNET_SHAPE_MISMATCH, "input %d of user op %s is absent", (int)i, host->name);
    for (int32_t o = 0; host->infer == NULL && o < node->n_outputs; ++o) {
        const ln_value *value = &values[node->outputs[o]];
        ln_tensor t;
        ln_declared(value, &t);
        if (t.dtype != LINNET_NONE && t.rank >= 0 && ln_count(&t) >= 0) continue;
        ln_fail(error, LINNET_UNKNOWN_SHAPE, "user op %s has no shape rule, and the file leaves a shape open",
                host->name);
        ln_at_tensor(error, value->name);
        return ln_hint(error, "register the op with a function `infer`, or declare the shape when the file is written"),
               LINNET_UNKNOWN_SHAPE;
    }
    return LINNET_OK;
}

linnet_status ln_user_resolve(const linnet_model *model, ln_node *node, const ln_value *values, linnet_error *error) {
    const ln_user_attributes *a = node->attributes;
    if (!LN_HAS_USER_OPS) {
        char what[160];
        snprintf(what, sizeof what, "the user op %.*s, which the file needs,", (int)ln_min(a->op.n, 95),
                 (const char *)a->op.v);
        return ln_left_out(what, "LINNET_USER_OPS", error);
    }
    const linnet_status status = ln_user_check(a, error);
    if (status != LINNET_OK) return status;
    for (int32_t i = 0; i < model->n_user_ops; ++i) {
        const linnet_user_op *host = &model->user_ops[i].host;
        if (strcmp(host->name, a->op.v) != 0) continue;
        if (host->version < a->version) return missing(a, host->version, error);
        node->op = &model->user_ops[i].op;
        return fits(host, node, values, error);
    }
    return missing(a, 0, error);
}
