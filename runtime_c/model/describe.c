/* describe.c - what a program can ask about an open model: signatures, tensors, variables, metadata, bytes.
 * Nothing here changes the model. */
#include "model/describe.h"

#include "base/platform_locks.h"
#include "base/structs.h"
#include "model/structure_values.h"

#include <string.h>

static const ln_signature *signature_at(const linnet_model *model, int signature) {
    return model && signature >= 0 && signature < model->n_signatures ? &model->signatures[signature] : NULL;
}

int linnet_model_signature_count(const linnet_model *model) { return model ? model->n_signatures : 0; }

const char *linnet_model_signature_name(const linnet_model *model, int signature) {
    const ln_signature *s = signature_at(model, signature);
    return s ? s->name : NULL;
}

int linnet_model_find_signature(const linnet_model *model, const char *name) {
    for (int i = 0; model && name && i < model->n_signatures; i++)
        if (!strcmp(model->signatures[i].name, name)) return i;
    return -1;
}

int linnet_model_input_count(const linnet_model *model, int signature) {
    const ln_signature *s = signature_at(model, signature);
    return s ? model->functions[s->function].n_inputs : 0;
}

int linnet_model_output_count(const linnet_model *model, int signature) {
    const ln_signature *s = signature_at(model, signature);
    return s ? model->functions[s->function].n_outputs : 0;
}

static linnet_status value_info(const ln_value *value, const char *name, linnet_tensor_info *out) {
    ln_tensor t;
    ln_declared(value, &t);
    return ln_tensor_info(&t, name, out);
}

static linnet_status port_info(const linnet_model *model, int signature, int i, bool output, linnet_tensor_info *out) {
    const ln_signature *s = signature_at(model, signature);
    const ln_function *f = s ? &model->functions[s->function] : NULL;
    if (!f || i < 0 || i >= (output ? f->n_outputs : f->n_inputs)) return LINNET_INVALID_ARGUMENT;
    return value_info(&f->values[(output ? f->outputs : f->inputs)[i]], (output ? s->outputs : s->inputs)[i], out);
}

linnet_status linnet_model_get_input(const linnet_model *model, int signature, int i, linnet_tensor_info *out) {
    return port_info(model, signature, i, false, out);
}

linnet_status linnet_model_get_output(const linnet_model *model, int signature, int i, linnet_tensor_info *out) {
    return port_info(model, signature, i, true, out);
}

/* Tells whether a node was made from the source node of this name. *last tells whether the result of the node is the
 * result of that source node. The text node->source is "OpType:name+OpType:name"; its last entry computes the result.
 */
static bool made_from(const ln_node *node, const char *name, bool *last) {
    const size_t length = strlen(name);
    *last = false;
    for (const char *part = node->source; part; part = strchr(part, '+')) {
        part += *part == '+';
        const char *label = strchr(part, ':');
        if (!label || !length || strncmp(label + 1, name, length)) continue;
        *last = !label[1 + length];
        if (*last || label[1 + length] == '+') return true;
    }
    return false;
}

const ln_node *ln_find_whole(const ln_function *f, const char *name) {
    bool last;
    for (int32_t i = 0; i < f->n_nodes; ++i)
        if (f->nodes[i].n_outputs > 0 && made_from(&f->nodes[i], name, &last)) return &f->nodes[i];
    return NULL;
}

/* Tells whether the first result of node i has the value of the source node after which node i is named. The value
 * differs if passes have merged later nodes into node i, or if several nodes were made from the source node. */
static bool makes_its_own(const ln_function *f, int32_t i) {
    for (int32_t k = 0; k < f->n_nodes; ++k) {
        bool last;
        if (made_from(&f->nodes[k], f->nodes[i].name, &last) && (k != i || !last)) return false;
    }
    return true;
}

int32_t ln_find_tensor(const ln_signature *s, const ln_function *f, const char *name, const char **own) {
    for (int32_t i = 0; name && i < f->n_outputs; ++i)
        if (!strcmp(*own = s->outputs[i], name)) return f->outputs[i];
    for (int32_t i = 0; name && i < f->n_values; ++i)
        if (!strcmp(*own = f->values[i].name, name)) return i;
    for (int32_t i = 0; name && i < f->n_nodes; ++i)
        if (f->nodes[i].n_outputs > 0 && !strcmp(*own = f->nodes[i].name, name) && makes_its_own(f, i))
            return f->nodes[i].outputs[0];
    return -1;
}

enum { MOST_NAME = 63 }; /* names are compared up to this number of bytes */

/* Returns how many bytes must be added, removed or replaced to turn one name into the other (Levenshtein 1966). */
static int changes(const char *a, const char *b) {
    const size_t m = strlen(a), n = strlen(b);
    if (m > MOST_NAME || n > MOST_NAME) return INT32_MAX;
    int row[MOST_NAME + 1];
    for (size_t j = 0; j <= n; ++j) row[j] = (int)j;
    for (size_t i = 0; i < m; ++i) {
        int corner = row[0]++;
        for (size_t j = 0; j < n; ++j) {
            const int other = 1 + (row[j] < row[j + 1] ? row[j] : row[j + 1]), same = corner + (a[i] != b[j]);
            corner = row[j + 1];
            row[j + 1] = same < other ? same : other;
        }
    }
    return row[n];
}

const char *ln_nearest_name(const ln_signature *s, const ln_function *f, const char *name) {
    const char *near = NULL;
    int least = 1 + (int)strlen(name) / 2; /* a name that needs more changes is not similar */
    const int32_t ports = f->n_inputs + f->n_outputs, steps = ports + f->n_nodes;
    for (int32_t i = 0; i < steps + f->n_values; ++i) {
        const char *other = i < f->n_inputs ? s->inputs[i]
                            : i < ports     ? s->outputs[i - f->n_inputs]
                            : i < steps     ? f->nodes[i - ports].name
                                            : f->values[i - steps].name;
        const int differ = changes(name, other);
        if (differ >= least || other[0] == 0) continue;
        least = differ;
        near = other;
    }
    return near;
}

linnet_status linnet_model_get_tensor(const linnet_model *model, int signature, const char *name,
                                      linnet_tensor_info *out) {
    const ln_signature *s = signature_at(model, signature);
    const ln_function *f = s ? &model->functions[s->function] : NULL;
    const int32_t i = f ? ln_find_tensor(s, f, name, &name) : -1;
    return i < 0 ? LINNET_INVALID_ARGUMENT : value_info(&f->values[i], name, out);
}

int linnet_model_variable_count(const linnet_model *model) { return model ? model->n_variables : 0; }

linnet_status linnet_model_get_variable(const linnet_model *model, int i, linnet_tensor_info *out) {
    if (!model || i < 0 || i >= model->n_variables) return LINNET_INVALID_ARGUMENT;
    return ln_tensor_info(&model->variables[i].tensor, model->variables[i].name, out);
}

const char *linnet_model_metadata(const linnet_model *model, const char *key) {
    if (model && key && !strcmp(key, "digest")) return model->digest;
    for (int32_t i = 0; model && key && i < model->n_metadata; i++)
        if (!strcmp(model->metadata[2 * i], key)) return model->metadata[2 * i + 1];
    return NULL;
}

size_t linnet_model_bytes(linnet_model *model) {
    if (!model) return 0;
    ln_lock_shared(&model->lock);
    const size_t bytes = model->memory.bytes + model->packed.bytes;
    ln_unlock(&model->lock);
    return bytes;
}

size_t linnet_model_mapped_bytes(const linnet_model *model) {
    return model && model->file_kind == LN_FILE_MAPPED ? model->file_size : 0;
}
