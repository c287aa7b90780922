/* structure.c - reads and verifies segments, variables, signatures and metadata; structure_nodes.c reads functions.
 * Each table is read once. */
#include "model/structure_reader.h"

#include "base/sort.h"
#include "model/structure_errors.h"
#include "model/structure_nodes.h"
#include "model/structure_values.h"

#include <string.h>

/* Slots of the tables in schema/linnet.fbs. */
enum {
    MODEL_PRODUCER,
    MODEL_FUNCTIONS,
    MODEL_SIGNATURES,
    MODEL_VARIABLES,
    MODEL_SEGMENTS,
    MODEL_METADATA,
    MODEL_EXTRAS
};
enum { SEGMENT_OFFSET, SEGMENT_SIZE, SEGMENT_DIGEST_KIND, SEGMENT_DIGEST };
enum { VARIABLE_NAME, VARIABLE_DTYPE, VARIABLE_SHAPE, VARIABLE_QUANT, VARIABLE_SEGMENT };
enum { SIGNATURE_NAME, SIGNATURE_FUNCTION, SIGNATURE_INPUTS, SIGNATURE_OUTPUTS };
enum { KEY_VALUE_KEY, KEY_VALUE_VALUE };
enum { EXTRA_KIND, EXTRA_TARGET, EXTRA_SEGMENT };
enum { PACKED_WEIGHTS = 2 }; /* the only kind of extra that this version knows */

enum { SEGMENT_ALIGNMENT = 64, HEADER_SIZE = 64 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool before(const void *a, const void *b) { return strcmp(a, b) < 0; }

/* Checks that all names differ and that none is empty. `kind` is a noun for the named things, for the error. */
static linnet_status check_names(ln_reader *r, const char *const *names, int64_t count, const char *kind) {
    const void **sorted = ln_pool_array(&r->temporary, count, sizeof *sorted);
    if (!sorted) return ln_reader_no_memory(r);
    for (int64_t i = 0; i < count; i++) sorted[i] = names[i];
    ln_sort(sorted, count, before);
    for (int64_t i = 0; i < count; i++) {
        const char *name = sorted[i];
        if (name[0] && (i == 0 || strcmp(sorted[i - 1], name) != 0)) continue;
        ln_fail(r->error, LINNET_CORRUPT, name[0] ? "two %s have the same name" : "one of the %s has no name", kind);
        ln_at_tensor(r->error, name);
        return ln_hint(r->error, "give each a unique name"), LINNET_CORRUPT;
    }
    return LINNET_OK;
}

/* ---- segments, signatures and metadata --------------------------------------------------------------------------- */

static linnet_status read_segments(ln_reader *r, const ln_fb_table *root, uint64_t structure_size) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_SEGMENTS, 4);
    ln_segment *segments = ln_pool_array(r->pool, tables.count, sizeof *segments);
    uint64_t left = r->model->file_size; /* segments do not overlap, so that reading all of them reads the file once */
    if (!segments) return ln_reader_no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_fb_table table = ln_fb_table_at(&tables, i);
        uint64_t offset = (uint64_t)ln_fb_unsigned(&table, SEGMENT_OFFSET, 8, 0);
        uint64_t size = (uint64_t)ln_fb_unsigned(&table, SEGMENT_SIZE, 8, 0);
        segments[i].digest_kind = (int32_t)ln_fb_unsigned(&table, SEGMENT_DIGEST_KIND, 1, LN_DIGEST_NONE);
        segments[i].digest = (uint64_t)ln_fb_unsigned(&table, SEGMENT_DIGEST, 8, 0);
        if (r->fb.problem) return ln_reader_problem(r);
        if (offset % SEGMENT_ALIGNMENT != 0)
            return ln_reader_corrupt_number(r, "", "a segment is not aligned to 64 bytes", "offset ", (int64_t)offset);
        if (offset < HEADER_SIZE + structure_size || offset > r->model->file_size ||
            size > r->model->file_size - offset || size > left)
            return ln_reader_corrupt_number(r, "", "a segment is outside the file or overlaps others", "segment ", i);
        left -= size;
        segments[i].data = (const char *)r->model->file + offset;
        segments[i].size = size;
    }
    r->model->segments = segments;
    r->model->n_segments = (int32_t)tables.count;
    return ln_reader_problem(r);
}

static linnet_status read_variables(ln_reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_VARIABLES, 4);
    ln_variable *variables = ln_pool_array(r->pool, tables.count, sizeof *variables);
    const char **names = ln_pool_array(&r->temporary, tables.count, sizeof *names);
    const uint64_t limit = (uint64_t)1 << 62; /* limit of the sum of their bytes, which a store computes */
    uint64_t total = 0;
    linnet_status status;
    if (!variables || !names) return ln_reader_no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_variable *v = &variables[i];
        ln_fb_table table = ln_fb_table_at(&tables, i);
        int64_t dtype = ln_fb_unsigned(&table, VARIABLE_DTYPE, 1, LINNET_NONE);
        int64_t index = ln_fb_signed(&table, VARIABLE_SEGMENT, 4, -1);
        ln_fb_vector shape = ln_fb_get_vector(&table, VARIABLE_SHAPE, 8);
        names[i] = v->name = ln_fb_string(&table, VARIABLE_NAME);
        if ((status = ln_read_shape(r, v->name, dtype, shape.count, &shape, &v->tensor)) ||
            (status = ln_read_quant(r, v->name, &table, VARIABLE_QUANT, &v->tensor)))
            return status;
        if (!ln_bytes(&v->tensor, &v->bytes))
            return ln_reader_corrupt_number(r, v->name, "a variable has an unknown dimension or rank", "rank ",
                                            v->tensor.rank);
        if (index != -1 && (status = ln_read_segment(r, v->name, index, v->bytes, &v->tensor.data))) return status;
        total += ln_round_up(v->bytes, LN_ALIGNMENT);
        if (total > limit) {
            ln_fail(r->error, LINNET_TOO_LARGE, "the total size of the variables is too large");
            ln_at_tensor(r->error, v->name);
            return ln_expected(r->error, "at most 2^62 bytes"), LINNET_TOO_LARGE;
        }
    }
    r->model->variables = variables;
    r->model->n_variables = (int32_t)tables.count;
    return r->fb.problem ? ln_reader_problem(r) : check_names(r, names, tables.count, "variables");
}

static linnet_status read_name_list(ln_reader *r, const ln_fb_table *table, int slot, int32_t count, const char *kind,
                                    const char *signature, const char *const **out) {
    ln_fb_vector strings = ln_fb_get_vector(table, slot, 4);
    const char **names;
    if (r->fb.problem) return ln_reader_problem(r);
    if (strings.count != (uint32_t)count) {
        ln_fail(r->error, LINNET_CORRUPT, "a signature and its function have different numbers of %s", kind);
        ln_at_tensor(r->error, signature);
        ln_expected(r->error, "%d", (int)count);
        return ln_got(r->error, "%u", (unsigned)strings.count), LINNET_CORRUPT;
    }
    names = ln_pool_array(r->pool, count, sizeof *names);
    if (!names) return ln_reader_no_memory(r);
    for (int32_t i = 0; i < count; i++) names[i] = ln_fb_string_at(&strings, (uint32_t)i);
    *out = names;
    return r->fb.problem ? ln_reader_problem(r) : check_names(r, names, count, kind);
}

static linnet_status read_signatures(ln_reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_SIGNATURES, 4);
    ln_signature *signatures = ln_pool_array(r->pool, tables.count, sizeof *signatures);
    const char **names = ln_pool_array(&r->temporary, tables.count, sizeof *names);
    linnet_status status;
    if (!signatures || !names) return ln_reader_no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_signature *s = &signatures[i];
        ln_fb_table table = ln_fb_table_at(&tables, i);
        int64_t function = ln_fb_signed(&table, SIGNATURE_FUNCTION, 4, 0);
        const ln_function *f;
        names[i] = s->name = ln_fb_string(&table, SIGNATURE_NAME);
        if (r->fb.problem) return ln_reader_problem(r);
        if (function < 0 || function >= r->n_functions)
            return ln_reader_corrupt(r, s->name, "a signature refers to a function that does not exist", function);
        s->function = (int32_t)function;
        f = &r->functions[function];
        if ((status = read_name_list(r, &table, SIGNATURE_INPUTS, f->n_inputs, "inputs", s->name, &s->inputs)) ||
            (status = read_name_list(r, &table, SIGNATURE_OUTPUTS, f->n_outputs, "outputs", s->name, &s->outputs)))
            return status;
    }
    r->model->signatures = signatures;
    r->model->n_signatures = (int32_t)tables.count;
    return r->fb.problem ? ln_reader_problem(r) : check_names(r, names, tables.count, "signatures");
}

/* Reads the packed constants. If they, or the segments, are not in the order in which linnet writes them, they could
 * not be found later and are ignored. Extras of kinds that this version does not know are skipped. */
static linnet_status read_extras(ln_reader *r, const ln_fb_table *root) {
    const ln_fb_vector tables = ln_fb_get_vector(root, MODEL_EXTRAS, 4);
    linnet_model *model = r->model;
    const char *last = "";
    int32_t count = 0;
    bool in_order = true;
    if (tables.count == 0) return LINNET_OK;
    model->stored = ln_pool_array(r->pool, tables.count, sizeof *model->stored);
    if (!model->stored) return ln_reader_no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_fb_table table = ln_fb_table_at(&tables, i);
        const char *target = ln_fb_string(&table, EXTRA_TARGET);
        int64_t index = ln_fb_signed(&table, EXTRA_SEGMENT, 4, -1);
        if (index < -1 || index >= model->n_segments)
            return ln_reader_corrupt(r, target, "an entry of `extras` refers to a segment that does not exist", index);
        if (index < 0 || ln_fb_unsigned(&table, EXTRA_KIND, 2, 0) != PACKED_WEIGHTS) continue;
        in_order &= strcmp(last, target) < 0;
        last = model->stored[count].key = target;
        model->stored[count++].segment = &model->segments[index];
    }
    for (int32_t i = 1; i < model->n_segments; i++)
        in_order &= (uintptr_t)model->segments[i].data >= (uintptr_t)model->segments[i - 1].data;
    model->n_stored = in_order ? count : 0;
    return LINNET_OK;
}

/* Reads the metadata, and adds the producer as the last entry. */
static linnet_status read_metadata(ln_reader *r, const ln_fb_table *root) {
    ln_fb_vector tables = ln_fb_get_vector(root, MODEL_METADATA, 4);
    const char **pairs = ln_pool_array(r->pool, 2 * ((int64_t)tables.count + 1), sizeof *pairs);
    const char *producer = ln_fb_string(root, MODEL_PRODUCER);
    if (!pairs) return ln_reader_no_memory(r);
    for (uint32_t i = 0; i < tables.count; i++) {
        ln_fb_table table = ln_fb_table_at(&tables, i);
        pairs[2 * i] = ln_fb_string(&table, KEY_VALUE_KEY);
        pairs[2 * i + 1] = ln_fb_string(&table, KEY_VALUE_VALUE);
    }
    pairs[2 * (size_t)tables.count] = "producer"; /* last, so that an entry of the file's metadata is found first */
    pairs[2 * (size_t)tables.count + 1] = producer;
    r->model->metadata = pairs;
    r->model->n_metadata = (int32_t)tables.count + (producer[0] != 0);
    return ln_reader_problem(r);
}

static linnet_status read_all(ln_reader *r, const void *structure, size_t size) {
    const ln_fb_table root = ln_fb_root(&r->fb, structure, size, "LNT1");
    linnet_status status;
    if ((status = ln_reader_problem(r)) || (status = read_segments(r, &root, size)) ||
        (status = read_variables(r, &root)))
        return status;
    const ln_fb_vector functions = ln_fb_get_vector(&root, MODEL_FUNCTIONS, 4);
    if ((status = ln_read_functions(r, &functions)) || (status = read_signatures(r, &root)) ||
        (status = read_extras(r, &root)))
        return status;
    return read_metadata(r, &root);
}

linnet_status ln_read_structure(linnet_model *model, const void *structure, size_t size, linnet_error *error) {
    ln_reader r;
    memset(&r, 0, sizeof r);
    r.model = model;
    r.pool = &model->pool;
    r.error = error;
    ln_pool_init(&r.temporary, &model->memory);
    const linnet_status status = read_all(&r, structure, size);
    ln_pool_free(&r.temporary);
    return status;
}
