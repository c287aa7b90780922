/* op.h - what the op table (runtime_c/generated/op_table.*) is made of, and the interface of shape rules.
 * To add an op: schema/ops/NAME.toml, then runtime_c/ops/NAME.c with ln_infer_NAME and its reference kernel. */
#ifndef LN_OP_H
#define LN_OP_H

#include "core/error.h"
#include "core/types.h"

enum ln_attribute_type {
    LN_ATTRIBUTE_INT,
    LN_ATTRIBUTE_BOOL,
    LN_ATTRIBUTE_FLOAT,
    LN_ATTRIBUTE_ENUM,
    LN_ATTRIBUTE_DTYPE,
    LN_ATTRIBUTE_FUNCTION,
    LN_ATTRIBUTE_INTS,
    LN_ATTRIBUTE_FLOATS
};

/* One attribute: where it is in the flatbuffer table (slot) and in the C struct (offset). Scalars that are not float
 * are int64_t in the struct, floats are double, lists are ln_ints or ln_floats. */
typedef struct ln_attribute {
    uint16_t name; /* in ln_names */
    uint16_t offset;
    uint8_t type;
    uint8_t slot;
    uint8_t limit; /* enums: number of values */
    union {
        int64_t integer;
        double real; /* LN_ATTRIBUTE_FLOAT */
    } fallback;      /* the default */
} ln_attribute;

enum ln_op_flag { LN_OP_IN_PLACE = 1, LN_OP_EPILOGUE = 2, LN_OP_DATA_DEPENDENT = 4, LN_OP_CAN_FAIL = 8 };
enum ln_op_layout { LN_PREFER_ANY, LN_PREFER_DENSE, LN_PREFER_CHANNELS_LAST };

struct ln_op;

/* The attributes of all ops, and the names of attributes and opcodes one after the other, each with its NUL: an offset
 * takes 2 bytes in the library, a pointer 32 with its relocation. For the same reason ops and kernels hold their names.
 */
extern const ln_attribute ln_attributes[];
extern const char ln_names[];

/* Shape rule. Reads inputs (dims may be -1, rank may be -1, `data` is the value when known; an absent optional input
 * has dtype LINNET_NONE) and sets dtype, rank and dims of every output; what cannot be known yet is -1. Outputs come in
 * zeroed except dtype and quant, which are those the file declares (LINNET_NONE when building): a rule overwrites dtype
 * where the op determines it. On bad operands it fails with SHAPE_MISMATCH, WRONG_DTYPE or BAD_ATTRIBUTE; the caller
 * adds node and names. Broadcasting an unknown with n > 1 gives n, with 1 gives unknown. */
typedef struct ln_infer {
    const struct ln_op *op;
    const void *attributes;
    int n_inputs;
    int n_outputs;
    const ln_tensor *inputs;
    ln_tensor *outputs;
    linnet_error *error;
} ln_infer;

typedef linnet_status (*ln_infer_function)(const ln_infer *infer);

typedef struct ln_op {
    char name[20]; /* "": no such op */
    uint16_t id;
    int8_t min_inputs, max_inputs; /* max -1: any number */
    int8_t min_outputs, max_outputs;
    uint8_t flags;
    uint8_t layout;  /* ln_op_layout of the first input and output */
    uint32_t dtypes; /* bit per linnet_dtype that it is defined for */
    uint8_t n_attributes;
    uint16_t first_attribute; /* in ln_attributes */
    uint16_t attributes_size;
    ln_infer_function infer;
} ln_op;

static inline const ln_attribute *ln_op_attribute(const ln_op *op, int i) {
    return &ln_attributes[op->first_attribute + i];
}

typedef struct ln_map_opcode_row {
    uint16_t name; /* in ln_names; 0: no such opcode */
    uint8_t arity;
    uint8_t types; /* 1 floats, 2 integers, 3 both */
} ln_map_opcode_row;

/* Helpers for shape rules (core/infer.c). */
/* NumPy broadcast of two shapes with unknowns into out (rank and dims only); SHAPE_MISMATCH when they do not fit. */
linnet_status ln_broadcast(const ln_tensor *a, const ln_tensor *b, ln_tensor *out, linnet_error *error);
/* Fills the dims of an output that depend on data (-1 from the rule of an op that is so flagged) with the most that
 * they can be. Returns a bit per such dim; 0 also where the operands leave the bound open. */
uint16_t ln_bound_output(const ln_infer *infer, ln_tensor *out);
/* Value of a 1-D (or scalar) i32/i64 operand as list into v (at most LN_MAX_RANK * 2 entries). Returns its length, -1
 * when the operand is absent or its value is not known yet, -2 when it is too long. */
int ln_int_operand(const ln_tensor *t, int64_t *v);

#endif
