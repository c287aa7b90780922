/* expand.c - turns the signature's function into the working graph: binds names and shapes, leaves out dead nodes.
 * A call is replaced by the nodes of its function, so every later pass sees one flat list. */
#include "plan/compile/expand.h"

#include "base/layout.h"
#include "model/attributes.h"
#include "model/describe.h"
#include "model/structure_values.h"
#include "plan/compile/control.h"
#include "plan/compile/infer.h"
#include "plan/graph/fold.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

/* Terminates, because functions refer only to functions with a higher index. */
bool ln_function_assigns(const linnet_model *model, int64_t function) {
    const ln_function *f = &model->functions[function];
    for (int32_t i = 0; i < f->n_nodes; ++i)
        if (ln_node_assigns(model, &f->nodes[i])) return true;
    return false;
}

bool ln_node_assigns(const linnet_model *model, const ln_node *node) {
    int64_t callees[LN_MOST_CALLEES];
    const int n = ln_callees(node, callees);
    bool assigns = node->op->flags & LN_OP_WRITES;
    for (int c = 0; c < n && !assigns; ++c) assigns = ln_function_assigns(model, callees[c]);
    return assigns;
}

linnet_status ln_expand_values(ln_work *w, const ln_function *f, int32_t *base) {
    const linnet_status charged = ln_work_charge(w, (uint64_t)f->n_values);
    if (charged != LINNET_OK) return charged;
    *base = ln_work_add_values(w, f->n_values, w->values.count > 0 ? LN_SLOT_BLOCK : LN_SLOT_KEPT);
    if (*base < 0) return ln_work_no_memory(w);
    for (int32_t i = 0; i < f->n_values; ++i) {
        const ln_value *source = &f->values[i];
        ln_work_value *v = ln_value_at(w, *base + i);
        v->name = source->name;
        ln_declared(source, &v->tensor); /* this holds for a variable too: the reader of the file has checked that
                                            variable and value have the same shape and dtype */
        v->host = source->data;
        v->variable = source->variable;
        v->known = v->variable >= 0 || v->host != NULL;
        v->readers = 0;
    }
    return LINNET_OK;
}

/* Returns the value of the working graph that nodes read in place of value i of the function: the value that the caller
 * feeds, if there is one, otherwise the value itself. */
static int32_t read_at(const ln_work *w, int32_t base, int32_t i) {
    return w->request.fed != NULL && w->depth == 0 && w->request.fed[i] > 0 ? w->request.fed[i] : base + i;
}

/* The node is done: counts one reader less for each of its operands, and frees results that nothing reads. */
static void release_operands(ln_work *w, const ln_node *node, int32_t base) {
    for (int32_t k = 0; k < node->n_inputs; ++k)
        if (node->inputs[k] >= 0) ln_work_release(w, read_at(w, base, node->inputs[k]));
    for (int32_t o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0) ln_work_unread(w, base + node->outputs[o]);
}

static linnet_status unknown_shape(ln_work *w, const ln_work_value *v, const char *field) {
    char text[96];
    ln_fail(w->error, LINNET_UNKNOWN_SHAPE, "the shape of an input must be given before planning");
    ln_at_tensor(w->error, v->name);
    ln_expected(w->error, "a number for every dimension");
    ln_got(w->error, "%s", ln_shape_text(v->tensor.dims, v->tensor.rank, text, sizeof text));
    return ln_hint(w->error, "give the shape of this input in linnet_plan_config.%s", field);
}

linnet_status ln_expand_nodes(ln_work *w, const ln_function *f, int32_t base, bool *needed) {
    bool *runs = ln_pool_array(&w->pool, f->n_nodes, sizeof *runs);
    if (runs == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < f->n_values; ++i) /* a value that the caller needs has one reader for this */
        if (needed[i]) ++ln_value_at(w, read_at(w, base, i))->readers;
    for (int32_t i = f->n_nodes - 1; i >= 0; --i) {
        const ln_node *node = &f->nodes[i];
        runs[i] = ln_node_assigns(w->model, node);
        for (int32_t o = 0; o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0 && needed[node->outputs[o]])
                runs[i] |= read_at(w, base, node->outputs[o]) == base + node->outputs[o];
        for (int32_t k = 0; runs[i] && k < node->n_inputs; ++k) {
            if (node->inputs[k] < 0) continue;
            needed[node->inputs[k]] = true;
            ++ln_value_at(w, read_at(w, base, node->inputs[k]))->readers;
        }
    }
    for (int32_t i = 0; w->request.fed != NULL && w->depth == 0 && i < f->n_values; ++i) {
        if (w->request.fed[i] <= 0 || ln_value_at(w, w->request.fed[i])->readers > 0) continue;
        ln_fail(w->error, LINNET_INVALID_ARGUMENT, "no fetched tensor needs this fed tensor");
        ln_at_tensor(w->error, ln_value_at(w, w->request.fed[i])->name);
        return ln_hint(w->error, "leave this feed out, or fetch a tensor that is computed from it");
    }
    for (int32_t i = 0; i < f->n_inputs; ++i) ln_work_unread(w, base + f->inputs[i]);
    for (int32_t i = 0; i < f->n_inputs; ++i) {
        const ln_work_value *v = ln_value_at(w, base + f->inputs[i]);
        if (w->depth == 0 && needed[f->inputs[i]] && !v->known) return unknown_shape(w, v, "shapes");
    }
    for (int32_t i = 0; i < f->n_nodes; ++i) {
        if (!runs[i]) continue;
        const ln_node *source = &f->nodes[i];
        ln_work_node *node =
            ln_work_new_node(w, source->op, source->attributes, source->name, i, source->n_inputs, source->n_outputs);
        if (node == NULL) return ln_work_no_memory(w);
        node->scope = source->placement;
        for (int32_t k = 0; k < source->n_inputs; ++k)
            node->inputs[k] = source->inputs[k] < 0 ? -1 : read_at(w, base, source->inputs[k]);
        const bool calls = node->op->flags & LN_OP_CALLS;
        for (int32_t o = 0; o < source->n_outputs; ++o) {
            const int32_t value = source->outputs[o]; /* results that nothing reads are not computed */
            node->outputs[o] = value < 0 || (calls && !needed[value]) ? -1 : base + value;
        }
        linnet_status status = ln_expand_node(w, node);
        if (status != LINNET_OK) {
            if (w->error != NULL && w->error->op[0] == 0) ln_at_node(w->error, i, source->name);
            return status;
        }
        release_operands(w, source, base);
    }
    return LINNET_OK;
}

linnet_status ln_inline(ln_work *w, int64_t function, const ln_work_node *node, int first_input) {
    const ln_function *f = &w->model->functions[function];
    if (w->depth >= MAX_DEPTH)
        return ln_fail(w->error, LINNET_UNSUPPORTED, "function calls are nested more than %d levels deep", MAX_DEPTH);
    if (f->n_inputs != node->n_inputs - first_input || f->n_outputs != node->n_outputs) {
        ln_fail(w->error, LINNET_SHAPE_MISMATCH, "function %s is called with the wrong number of operands", f->name);
        ln_expected(w->error, "%d inputs, %d outputs", f->n_inputs, f->n_outputs);
        return ln_got(w->error, "%d inputs, %d outputs", node->n_inputs - first_input, node->n_outputs);
    }
    int32_t base;
    linnet_status status = ln_expand_values(w, f, &base);
    bool *needed = ln_pool_array(&w->pool, f->n_values, sizeof *needed);
    if (status != LINNET_OK) return status;
    if (needed == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < f->n_inputs; ++i) {
        const int32_t from = node->inputs[first_input + i];
        if (from < 0) continue;
        /* Binds the parameter to the argument by an identity node, which later passes remove. */
        ln_work_node *bind = ln_work_identity(w, node->name, from, base + f->inputs[i]);
        if (bind == NULL) return ln_work_no_memory(w);
        if ((status = ln_infer_node(w, bind)) != LINNET_OK) return status;
    }
    for (int32_t o = 0; o < f->n_outputs; ++o) needed[f->outputs[o]] |= node->outputs[o] >= 0;
    ++w->depth;
    status = ln_expand_nodes(w, f, base, needed);
    --w->depth;
    if (status != LINNET_OK) return status;
    for (int32_t o = 0; o < f->n_outputs; ++o) {
        if (node->outputs[o] < 0) continue;
        ln_work_node *bind = ln_work_identity(w, node->name, base + f->outputs[o], node->outputs[o]);
        if (bind == NULL) return ln_work_no_memory(w);
        if ((status = ln_infer_node(w, bind)) != LINNET_OK) return status;
    }
    for (int32_t o = 0; o < f->n_outputs; ++o) {
        if (node->outputs[o] < 0 || !needed[f->outputs[o]]) continue;
        needed[f->outputs[o]] = false; /* an output may be listed twice */
        ln_work_release(w, base + f->outputs[o]);
    }
    return LINNET_OK;
}

/* Binds the open dimensions of a value to the given shape. If a dimension is an upper bound, any smaller size is
   accepted too. */
static linnet_status bind_value(ln_work *w, ln_work_value *v, const linnet_shape *shape, bool bound) {
    bool fits = shape->rank >= 0 && shape->rank <= LN_MAX_RANK && (v->tensor.rank < 0 || v->tensor.rank == shape->rank);
    for (int d = 0; fits && d < shape->rank; ++d)
        fits = shape->dims[d] >= 0 &&
               (v->tensor.rank < 0 || v->tensor.dims[d] < 0 || v->tensor.dims[d] == shape->dims[d] ||
                (bound && v->tensor.dims[d] < shape->dims[d]));
    if (!fits) {
        char declared[96], given[96];
        ln_fail(w->error, LINNET_WRONG_SHAPE,
                bound ? "an input is larger than its bound"
                      : "the shape given for an input does not match its declaration");
        ln_at_tensor(w->error, shape->input);
        ln_shape_text(v->tensor.dims, v->tensor.rank, declared, sizeof declared);
        ln_shape_text(shape->dims, shape->rank < 0 || shape->rank > LN_MAX_RANK ? 0 : shape->rank, given, sizeof given);
        ln_expected(w->error, bound ? "at most %s" : "%s", bound ? given : declared);
        ln_got(w->error, "%s", bound ? declared : given);
        return ln_hint(w->error, bound ? "plan with a higher bound in linnet_plan_config.bounds"
                                       : "only dimensions that the file leaves unknown can be given");
    }
    for (int d = 0; d < shape->rank; ++d)
        if (v->tensor.rank < 0 || v->tensor.dims[d] < 0) {
            v->tensor.dims[d] = shape->dims[d];
            w->request.opened = shape->input;
        }
    v->tensor.rank = (int8_t)shape->rank;
    return LINNET_OK;
}

/* Returns the value of the input of that name, or -1. */
static int32_t find_input(const ln_signature *signature, const ln_function *f, const char *name) {
    for (int32_t i = 0; name != NULL && i < f->n_inputs; ++i)
        if (strcmp(name, signature->inputs[i]) == 0 || strcmp(name, f->values[f->inputs[i]].name) == 0)
            return f->inputs[i];
    return -1;
}

static linnet_status bind_shape(ln_work *w, const ln_signature *signature, const ln_function *f,
                                const linnet_shape *shape, bool bound) {
    const int32_t value = find_input(signature, f, shape->input);
    if (value >= 0) return bind_value(w, ln_value_at(w, value), shape, bound);
    ln_fail(w->error, LINNET_UNKNOWN_NAME, "the signature has no input of this name");
    ln_at_tensor(w->error, shape->input ? shape->input : "");
    return ln_expected(w->error, "an input of signature %s", signature->name);
}

/* An input whose shape is known gets memory. */
static linnet_status settle(ln_work *w, ln_work_value *v) {
    uint64_t bytes;
    if (v->tensor.rank < 0 || ln_count(&v->tensor) < 0) return LINNET_OK;
    if (!ln_bytes(&v->tensor, &bytes)) {
        ln_fail(w->error, LINNET_TOO_LARGE, "an input of this shape is too large");
        ln_at_tensor(w->error, v->name);
        return LINNET_TOO_LARGE;
    }
    ln_set_layout(&v->tensor, LN_LAYOUT_DENSE);
    v->known = true;
    return LINNET_OK;
}

static linnet_status no_tensor(ln_work *w, const ln_signature *signature, const ln_function *f, const char *name,
                               const char *field) {
    const ln_node *whole = ln_find_whole(f, name ? name : "");
    const char *near = ln_nearest_name(signature, f, name ? name : "");
    ln_fail(w->error, LINNET_UNKNOWN_NAME, "no tensor or step has this name from linnet_plan_config.%s", field);
    ln_at_tensor(w->error, name ? name : "");
    ln_expected(w->error, "an input or output of signature %s, or a tensor or step of its function", signature->name);
    if (whole)
        return ln_hint(w->error, "it has become a part of step '%.60s', whose result is '%.60s'", whole->name,
                       f->values[whole->outputs[0]].name);
    return near ? ln_hint(w->error, "the nearest name is '%.100s'", near) : LINNET_UNKNOWN_NAME;
}

/* Tells whether passes have merged equal values into this one. A run that feeds one of them must not change the readers
 * of the others. */
static bool merged(const ln_function *f, int32_t value) {
    for (int32_t i = 0; i < f->n_nodes; ++i)
        for (int32_t o = 0; o < f->nodes[i].n_outputs; ++o)
            if (f->nodes[i].outputs[o] == value) return !strncmp(f->nodes[i].source, "equal:", 6);
    return false;
}

/* Applies feed number i. The readers of the fed tensor get a new value, which is an input of the plan. Nodes that only
   the old value needs are left out, like all dead nodes. */
static linnet_status feed(ln_work *w, const ln_signature *signature, const ln_function *f, const linnet_shape *given,
                          int32_t i) {
    const char *name;
    int32_t at = find_input(signature, f, given->input);
    if (at < 0) at = ln_find_tensor(signature, f, given->input, &name);
    if (at < 0) return no_tensor(w, signature, f, given->input, "feeds");
    for (int32_t k = 0; k < f->n_inputs; ++k) {
        if (at != f->inputs[k]) continue;
        if (strcmp(given->input, signature->inputs[k]) == 0)
            return given->rank < 0 ? LINNET_OK : bind_value(w, ln_value_at(w, at), given, false);
        ln_fail(w->error, LINNET_INVALID_ARGUMENT, "the fed tensor is an input that has another name");
        ln_at_tensor(w->error, given->input);
        ln_expected(w->error, "%s", signature->inputs[k]);
        return ln_hint(w->error, "feed the input by its name");
    }
    const bool variable = f->values[at].variable >= 0;
    if (variable || w->request.fed[at] > 0) {
        ln_fail(w->error, LINNET_INVALID_ARGUMENT, variable ? "a variable cannot be fed" : "a tensor is fed twice");
        ln_at_tensor(w->error, given->input);
        return ln_hint(w->error, variable ? "write its value into the store: linnet_store_write"
                                          : "feed it by one of its names only");
    }
    if (f->values[at].data || merged(f, at)) {
        ln_fail(w->error, LINNET_INVALID_ARGUMENT,
                f->values[at].data ? "a constant cannot be fed" : "the fed tensor stands for several equal tensors");
        ln_at_tensor(w->error, given->input);
        return ln_hint(w->error, f->values[at].data ? "the steps that read it may have been computed already"
                                                    : "convert the model without optimization, or feed another tensor");
    }
    w->request.fed[at] = ln_work_add_values(w, 1, LN_SLOT_KEPT);
    if (w->request.fed[at] < 0) return ln_work_no_memory(w);
    ln_work_value *v = ln_value_at(w, w->request.fed[at]);
    v->name = name;
    ln_declared(&f->values[at], &v->tensor);
    v->tensor.data = NULL;
    v->input = f->n_inputs + i;
    v->readers = 0;
    linnet_status status = given->rank < 0 ? LINNET_OK : bind_value(w, v, given, false);
    if (status == LINNET_OK) status = settle(w, v);
    return status != LINNET_OK || v->known ? status : unknown_shape(w, v, "feeds");
}

/* With strict_dims, dimensions with the same name must have the same size. */
static linnet_status check_dim_names(ln_work *w, const ln_signature *signature, const ln_function *f) {
    for (int32_t i = 0; i < f->n_inputs; ++i) {
        const char *const *names = f->values[f->inputs[i]].dim_names;
        const ln_tensor *t = &ln_value_at(w, f->inputs[i])->tensor;
        for (int d = 0; names != NULL && d < t->rank; ++d) {
            if (names[d][0] == 0 || t->dims[d] < 0) continue;
            for (int32_t k = 0; k <= i; ++k) {
                const char *const *others = f->values[f->inputs[k]].dim_names;
                const ln_tensor *o = &ln_value_at(w, f->inputs[k])->tensor;
                for (int e = 0; others != NULL && e < (k < i ? o->rank : d); ++e) {
                    if (o->dims[e] < 0 || o->dims[e] == t->dims[d] || strcmp(names[d], others[e]) != 0) continue;
                    ln_fail(w->error, LINNET_WRONG_SHAPE, "dimension '%s' has two different sizes", names[d]);
                    ln_at_tensor(w->error, signature->inputs[i]);
                    ln_expected(w->error, "%lld, as axis %d of input '%s'", (long long)o->dims[e], e,
                                signature->inputs[k]);
                    ln_got(w->error, "%lld as axis %d", (long long)t->dims[d], d);
                    return ln_hint(w->error, "give both the same size, or plan without linnet_plan_config.strict_dims");
                }
            }
        }
    }
    return LINNET_OK;
}

linnet_status ln_pass_expand(ln_work *w) {
    const ln_signature *signature = w->request.signature;
    const linnet_plan_config *config = w->request.config;
    const ln_function *f = &w->model->functions[signature->function];
    int32_t base; /* 0: values of the signature's function keep their index */
    linnet_status status = ln_expand_values(w, f, &base);
    if (status != LINNET_OK) return status;
    bool *needed = ln_pool_array(&w->pool, f->n_values, sizeof *needed);
    if (needed == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; i < f->n_inputs; ++i) ln_value_at(w, f->inputs[i])->input = i;
    for (int32_t i = 0; i < config->shape_count; ++i)
        if ((status = bind_shape(w, signature, f, &config->shapes[i], false)) != LINNET_OK) return status;
    for (int32_t i = 0; i < config->bound_count; ++i)
        if ((status = bind_shape(w, signature, f, &config->bounds[i], true)) != LINNET_OK) return status;
    if (config->feed_count > 0 &&
        (w->request.fed = ln_pool_array(&w->pool, f->n_values, sizeof *w->request.fed)) == NULL)
        return ln_work_no_memory(w);
    for (int32_t i = 0; i < config->feed_count; ++i)
        if ((status = feed(w, signature, f, &config->feeds[i], i)) != LINNET_OK) return status;
    if (config->strict_dims && (status = check_dim_names(w, signature, f)) != LINNET_OK) return status;
    for (int32_t i = 0; i < f->n_inputs; ++i)
        if ((status = settle(w, ln_value_at(w, f->inputs[i]))) != LINNET_OK) return status;
    w->n_fetches = config->fetches != NULL ? config->fetch_count : f->n_outputs;
    w->fetches = ln_pool_array(&w->pool, w->n_fetches, sizeof *w->fetches);
    int32_t *asked = ln_pool_array(&w->pool, w->n_fetches, sizeof *asked);
    if (w->pool.failed) return ln_work_no_memory(w);
    w->request.fetches = asked;
    for (int32_t i = 0; i < w->n_fetches; ++i) {
        const char *name = config->fetches != NULL ? config->fetches[i] : NULL, *own;
        const int32_t at = config->fetches == NULL ? f->outputs[i] : ln_find_tensor(signature, f, name, &own);
        if (at < 0) return no_tensor(w, signature, f, name, "fetches");
        w->fetches[i] = asked[i] = read_at(w, base, at);
        needed[at] = true;
    }
    status = ln_expand_nodes(w, f, base, needed);
    if (status == LINNET_SHAPE_MISMATCH && w->request.opened != NULL && w->error != NULL && w->error->hint[0] == 0)
        ln_hint(w->error, "check the shape given for input '%.40s': the model leaves it open", w->request.opened);
    return status;
}

linnet_status ln_pass_resume(ln_work *w) {
    linnet_status status = ln_work_find_spare(w);
    int32_t n;
    ln_work_node **order = ln_work_take_nodes(w, &n);
    if (status == LINNET_OK && order == NULL) return ln_work_no_memory(w);
    for (int32_t i = 0; status == LINNET_OK && i < n; ++i) status = ln_expand_node(w, order[i]);
    return status;
}
