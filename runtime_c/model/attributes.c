/* attributes.c - reads the attributes of any op from the descriptors in the op table.
 * Absent fields take the descriptor's default, so that files stay small and ops can gain attributes. */
#include "model/attributes.h"

#include "model/structure_errors.h"
#include "model/structure_reader.h"
#include "generated/op_table.h"

#include <string.h>

static linnet_status bad(linnet_error *error, const ln_op *op, const ln_attribute *a, int64_t got, const char *expected,
                         int64_t limit) {
    ln_fail(error, LINNET_BAD_ATTRIBUTE, "attribute '%s' of %s is out of range", ln_names + a->name, op->name);
    ln_expected(error, expected, (long long)limit);
    ln_got(error, "%lld", (long long)got);
    ln_hint(error, "the file is damaged or was written by a newer linnet; convert the model again");
    return LINNET_BAD_ATTRIBUTE;
}

static linnet_status read_one(const ln_op *op, const ln_attribute *a, const ln_fb_table *table, int32_t function,
                              int32_t n_functions, void *field, linnet_error *error) {
    int64_t value = a->fallback.integer;
    switch (a->type) {
    case LN_ATTRIBUTE_INT: value = ln_fb_signed(table, a->slot, 8, value); break;
    case LN_ATTRIBUTE_BOOL:
        value = ln_fb_unsigned(table, a->slot, 1, value);
        if (value > 1) return bad(error, op, a, value, "0 or %lld", 1);
        break;
    case LN_ATTRIBUTE_ENUM:
        value = ln_fb_unsigned(table, a->slot, 1, value);
        if (value >= a->limit) return bad(error, op, a, value, "a number below %lld", a->limit);
        break;
    case LN_ATTRIBUTE_DTYPE:
        value = ln_fb_unsigned(table, a->slot, 1, value);
        if (value > LN_LAST_DTYPE) return bad(error, op, a, value, "a dtype number of at most %lld", LN_LAST_DTYPE);
        break;
    case LN_ATTRIBUTE_FUNCTION:
        value = ln_fb_signed(table, a->slot, 4, value);
        if (value <= function || value >= n_functions)
            return bad(error, op, a, value, "the index of a later function of the file, below %lld", n_functions);
        break;
    case LN_ATTRIBUTE_FLOAT: {
        double real = ln_fb_double(table, a->slot, a->fallback.real);
        memcpy(field, &real, sizeof real);
        return LINNET_OK;
    }
    case LN_ATTRIBUTE_INTS: {
        ln_fb_vector vector = ln_fb_get_vector(table, a->slot, 8);
        ln_ints list = {vector.count ? vector.data : NULL, vector.count};
        memcpy(field, &list, sizeof list);
        return LINNET_OK;
    }
    case LN_ATTRIBUTE_FLOATS: {
        ln_fb_vector vector = ln_fb_get_vector(table, a->slot, 8);
        ln_floats list = {vector.count ? vector.data : NULL, vector.count};
        memcpy(field, &list, sizeof list);
        return LINNET_OK;
    }
    case LN_ATTRIBUTE_BYTES: {
        ln_fb_vector vector = ln_fb_get_vector(table, a->slot, 1);
        ln_text text = {vector.count ? vector.data : "", vector.count};
        memcpy(field, &text, sizeof text);
        return LINNET_OK;
    }
    default:
        return ln_fail(error, LINNET_UNSUPPORTED, "attribute '%s' of %s has an unknown type", ln_names + a->name,
                       op->name);
    }
    memcpy(field, &value, sizeof value);
    return LINNET_OK;
}

linnet_status ln_read_attributes(ln_pool *pool, const ln_op *op, const ln_fb_table *node, int32_t function,
                                 int32_t n_functions, const void **out, linnet_error *error) {
    int64_t type = ln_fb_unsigned(node, LN_NODE_ATTRIBUTES_TYPE, 1, 0);
    ln_fb_table table = ln_fb_get_table(node, LN_NODE_ATTRIBUTES);
    char *attributes;
    *out = NULL;
    if (node->fb->problem) return ln_structure_problem(node->fb, LINNET_OK, error);
    if (table.at && type != op->id) {
        ln_fail(error, LINNET_CORRUPT, "a node of %s has the attributes of another op", op->name);
        ln_expected(error, "attributes of type %d", op->id);
        return ln_got(error, "type %d", (int)type), LINNET_CORRUPT;
    }
    if (op->n_attributes == 0) return LINNET_OK;
    attributes = ln_pool_alloc(pool, op->attributes_size);
    if (!attributes) return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate the attributes of a node");
    for (int i = 0; i < op->n_attributes; i++) {
        const ln_attribute *a = ln_op_attribute(op, i);
        linnet_status status = read_one(op, a, &table, function, n_functions, attributes + a->offset, error);
        if (status) return status;
    }
    *out = attributes;
    return ln_structure_problem(node->fb, LINNET_OK, error);
}

int ln_callees(const ln_node *node, int64_t callees[LN_MOST_CALLEES]) {
    int n = 0;
    if (!(node->op->flags & LN_OP_CALLS)) return 0;
    for (int i = 0; i < node->op->n_attributes && n < LN_MOST_CALLEES; i++) {
        const ln_attribute *a = ln_op_attribute(node->op, i);
        if (a->type == LN_ATTRIBUTE_FUNCTION)
            callees[n++] = *(const int64_t *)((const char *)node->attributes + a->offset);
    }
    return n;
}

const ln_op *ln_read_op(const ln_fb_table *node, linnet_error *error) {
    int64_t id = ln_fb_unsigned(node, LN_NODE_OP, 2, 0);
    if (id > 0 && id < LN_OP_LIMIT && ln_ops[id].name[0]) return &ln_ops[id];
    ln_fail(error, LINNET_UNSUPPORTED, "this build has no op with number %d", (int)id);
    ln_expected(error, "the number of an op in docs/ops.md, below %d", LN_OP_LIMIT);
    ln_hint(error, "use a newer linnet (this is version %s)", linnet_version());
    return NULL;
}
