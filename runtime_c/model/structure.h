/* structure.h - reads the flatbuffer of a file into the verified structs of graph.h.
 * The planner and the kernels may trust everything that passes here: indices, sizes, enums, programs, the order of
 * nodes. */
#ifndef LN_STRUCTURE_H
#define LN_STRUCTURE_H

#include "base/flatbuffer.h"
#include "model/graph.h"
#include "generated/op_table.h"
#include "linnet_ext.h"

enum { LN_MAP_INSTRUCTION = 5, LN_MAP_MOST_INSTRUCTIONS = 4096, LN_HEADER_SIZE = 64, LN_FORMAT_VERSION = 2 };

/* model.c: writes the header of a file with this structure. version: 1, or 2 if it has i4, u4 or quantization per
 * block (docs/format.md). */
void ln_write_header(void *header, const void *structure, uint64_t structure_size, uint64_t file_size,
                     uint32_t version);

/* verify.c: checks the bytes of segments against their digests, and the zeros around them. With `strict`, a segment
 * without a digest or a newer format is also an error. `out` may be NULL. Errors: CORRUPT (the first problem),
 * NEWER_FORMAT. */
linnet_status ln_verify_bytes(const linnet_model *model, bool strict, linnet_verified *out, linnet_error *error);

/* Fills the functions, signatures, variables, segments and metadata of the model from the structure, a private
 * 16-byte-aligned copy in the model's pool. Segments refer to model->file. Errors: CORRUPT, UNSUPPORTED, BAD_ATTRIBUTE,
 * TOO_LARGE, OUT_OF_MEMORY. */
linnet_status ln_read_structure(linnet_model *model, const void *structure, size_t size, linnet_error *error);

/* attributes.c: reads the op's attribute struct from the Attributes union of a Node table. Lists point into the
 * structure. The value of a function attribute must be greater than `function` and less than n_functions. */
linnet_status ln_read_attributes(ln_pool *pool, const ln_op *op, const ln_fb_table *node, int32_t function,
                                 int32_t n_functions, const void **out, linnet_error *error);

/* The op of a Node table, or NULL (with UNSUPPORTED in `error`) when this build does not know it. */
const ln_op *ln_read_op(const ln_fb_table *node, linnet_error *error);

/* user.c: copies config->user_ops into the model, which has no graph yet. Errors:
 * INVALID_ARGUMENT, OUT_OF_MEMORY. */
linnet_status ln_user_register(linnet_model *model, const linnet_model_config *config, linnet_error *error);
/* Fills a row from one registration; the name is not copied. Errors: INVALID_ARGUMENT. */
linnet_status ln_user_row(const linnet_user_op *from, struct ln_user_op *row, linnet_error *error);
/* Checks the lists in the attributes of a user op against each other. Errors: BAD_ATTRIBUTE. */
linnet_status ln_user_check(const void *attributes, linnet_error *error);
/* Sets node->op to the registered op that the node names, and checks the operands. Errors: BAD_ATTRIBUTE, UNSUPPORTED,
 * SHAPE_MISMATCH, UNKNOWN_SHAPE. */
linnet_status ln_user_resolve(const linnet_model *model, ln_node *node, const ln_value *values, linnet_error *error);

/* verify_map.c: checks a program so that the interpreter can run it without checks. Operands that are known are checked
   too. */
linnet_status ln_verify_map(const ln_map_attributes *map, int n_inputs, const ln_tensor *inputs, int n_outputs,
                            const ln_tensor *outputs, ln_pool *temporary, linnet_error *error);

/* CORRUPT with the reader's problem, or `otherwise` when there is none. */
linnet_status ln_structure_problem(const ln_fb *fb, linnet_status otherwise, linnet_error *error);

/* Whether a zero point is in the range of the (integer) dtype. */
bool ln_zero_fits(int dtype, int32_t zero);

/* Slots of the tables in schema/linnet.fbs. */
enum {
    LN_NODE_OP,
    LN_NODE_INPUTS,
    LN_NODE_OUTPUTS,
    LN_NODE_ATTRIBUTES_TYPE,
    LN_NODE_ATTRIBUTES,
    LN_NODE_NAME,
    LN_NODE_SOURCE
};

#endif
