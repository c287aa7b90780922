/* op.h - the types of the op table (runtime_c/generated/op_table.*), and the interface of shape rules.
 * To add an op: schema/ops/NAME.toml, then runtime_c/ops/NAME.c with ln_infer_NAME and its reference kernel. */
#ifndef LN_OP_H
#define LN_OP_H

#include "base/error.h"
#include "base/types.h"

/* Marks a function that runs only while a model is planned. The compiler then optimizes it for size, even where the
 * flags of the folder ask for speed. */
#if defined(__GNUC__)
#define LN_PLANNING __attribute__((cold))
#else
#define LN_PLANNING
#endif

enum ln_attribute_type {
    LN_ATTRIBUTE_INT,
    LN_ATTRIBUTE_BOOL,
    LN_ATTRIBUTE_FLOAT,
    LN_ATTRIBUTE_ENUM,
    LN_ATTRIBUTE_DTYPE,
    LN_ATTRIBUTE_FUNCTION,
    LN_ATTRIBUTE_INTS,
    LN_ATTRIBUTE_FLOATS,
    LN_ATTRIBUTE_BYTES
};

/* One attribute of an op: its place in the flatbuffer table of the file (slot) and in the C struct that kernels read
 * (offset). In the struct, floats are double, all other scalars are int64_t, and lists are ln_ints, ln_floats or
 * ln_text. */
typedef struct ln_attribute {
    uint16_t name; /* offset of the name in ln_names */
    uint16_t offset;
    uint8_t type;
    uint8_t slot;
    uint8_t limit; /* of an enum: number of its values */
    union {
        int64_t integer;
        double real; /* LN_ATTRIBUTE_FLOAT */
    } fallback;      /* the value if the file has none */
} ln_attribute;

/* Traits of ops, from schema/ops/NAME.toml. schema/README.md defines each of them. */
enum ln_op_flag {
    /* The first result may overwrite the first operand; in a map, any result may overwrite any operand. */
    LN_OP_IN_PLACE = 1,
    LN_OP_EPILOGUE = 2,       /* a map can be applied to the result before the result is stored */
    LN_OP_DATA_DEPENDENT = 4, /* a run determines dims of the result; the shape rule gives their bounds */
    LN_OP_CAN_FAIL = 8,       /* a run may fail because of the values of operands (indices, lengths, an axis) */
    LN_OP_COMPUTES_F32 = 16,  /* f16 and bf16 are only storage for the op, which may run in f32 between casts */
    LN_OP_EXACT = 32,         /* every kernel gives the same bits */
    LN_OP_CALLS = 64,         /* the op calls functions of the file; its attributes name them */
    LN_OP_WRITES = 128,       /* the op writes the variable that is its first operand */
    LN_OP_LOOKS_UP = 256,     /* the op reads only selected parts of its first operand */
    LN_OP_REGISTERED = 512,   /* the host registers the op with the model (kernel/user.h) */
    LN_OP_VARIES = 1024,      /* equal operands may give different results, so it is never folded or computed twice */
    LN_OP_BLOCKS = 2048       /* operands and results may have quantization per block */
};
/* The layout that an op prefers for an operand: any, dense, channels-last, or the layout of the node's first result.
 * Channels-last applies only where the channels are the second dimension. */
enum ln_op_layout { LN_PREFER_FREE, LN_PREFER_DENSE, LN_PREFER_CHANNELS_LAST, LN_PREFER_FOLLOW };
/* How many operations an op needs per element of the result. LINEAR: one. PROGRAM: as many as the map's program has
   instructions. PRODUCT: as many as the longest operand has elements. LINES: as many as the largest dim of any
   operand. */
enum ln_op_work { LN_WORK_LINEAR, LN_WORK_PROGRAM, LN_WORK_PRODUCT, LN_WORK_LINES };

struct ln_op;

/* The attributes of all ops; and the names of all attributes and map opcodes, one after another, each with its NUL.
   Tables hold offsets into ln_names instead of pointers, because an offset takes 2 bytes in the library and a pointer
   takes 32 with its relocation. For the same reason, ln_op and ln_kernel contain their names as arrays. */
extern const ln_attribute ln_attributes[];
extern const char ln_names[];

/* Facts that a shape rule can report besides shapes, for the planner's bounds and checks. */
typedef struct ln_infer_facts {
    int64_t most;    /* for data-dependent ops: the largest possible value of a dim that is -1; -1: not known */
    int64_t places;  /* with `indices`: the number of positions from which the indices select */
    int8_t indices;  /* number of the operand with the indices; -1: there is none, or several numbers form an index */
    bool from_start; /* negative indices are errors */
} ln_infer_facts;

/* The arguments of a shape rule.
 *
 * Inputs: a rank or a dim may be -1 (unknown), `data` is the value if it is known, and an absent optional input has
 * dtype LINNET_NONE. Outputs: on entry they are zeroed, except dtype and quant, which the file declares (the dtype is
 * LINNET_NONE while a graph is built). Outputs of a registered op have the declared shape, too. The rule sets dtype,
 * rank and dims of every output; a dim that is not known yet becomes -1. The rule overwrites a declared dtype only if
 * the op determines it. Errors: on bad operands the rule fails with SHAPE_MISMATCH, WRONG_DTYPE or BAD_ATTRIBUTE; the
 * caller adds the node and the names to the error. Broadcasting an unknown dim with n > 1 gives n. Broadcasting an
 * unknown dim with 1 gives an unknown dim. */
typedef struct ln_infer {
    const struct ln_op *op;
    const void *attributes;
    int n_inputs;
    int n_outputs;
    const ln_tensor *inputs;
    ln_tensor *outputs;
    linnet_error *error;
    ln_infer_facts *facts; /* NULL: not requested. Starts as ln_no_facts; the rule fills in the facts that its op has */
} ln_infer;

typedef linnet_status (*ln_infer_function)(const ln_infer *infer);

/* For ops whose attributes determine the layout: returns the layout (ln_op_layout) that a node prefers for its operand
 * number `input`, or for its outputs if `input` is -1. `x` is the first operand; NULL: absent. */
typedef int (*ln_layout_function)(const void *attributes, const ln_tensor *x, int input);

/* Adds the work of a call to *counts (kernel/cost.h). On entry, the bytes are already those of all operands and
 * results. The function may correct the bytes if the op reads only parts of its operands. */
struct ln_call;
typedef struct ln_counts ln_counts;
typedef void (*ln_count_function)(const struct ln_call *call, ln_counts *counts);

/* A row of the op table. A registered user op has its own row (ln_user_op). */
typedef struct ln_op {
    char name[20]; /* "": there is no op with this number */
    uint16_t id;
    int8_t min_inputs, max_inputs; /* max_inputs -1: there is no limit */
    int8_t min_outputs, max_outputs;
    uint16_t flags;  /* ln_op_flag */
    uint32_t dtypes; /* one bit per linnet_dtype that the op is defined for */
    uint8_t family;  /* ln_op_family */
    uint8_t work;    /* ln_op_work */
    uint16_t absent; /* mask (ln_operand_bit) of the operands that may be absent */
    /* Mask (ln_operand_bit) of the operands whose values, not only their shapes, may determine shapes. */
    uint16_t decides;
    /* ln_op_layout, 2 bits each: of the first output, the first input, the second input, other inputs. */
    uint8_t layouts;
    uint8_t channel_axis; /* 1 + the number of the attribute that is the axis of the channels; 0: none */
    uint8_t n_attributes;
    uint16_t first_attribute; /* index in ln_attributes */
    uint16_t attributes_size;
    ln_infer_function infer;
    ln_layout_function layout; /* NULL: `layouts` holds for all attributes */
    ln_count_function count;   /* NULL: one operation per element of the results */
} ln_op;

/* Returns attribute number i, 0 <= i < n_attributes. */
static inline const ln_attribute *ln_op_attribute(const ln_op *op, int i) {
    return &ln_attributes[op->first_attribute + i];
}

/* Returns the bit of operand i in a mask. Bit 15 stands for operand 15 and all operands after it. */
static inline bool ln_operand_bit(uint16_t mask, int i) { return mask >> (i < 15 ? i : 15) & 1; }

/* Returns the node's attribute channel_axis. Precondition: op->channel_axis > 0. */
static inline int64_t ln_channel_axis(const ln_op *op, const void *attributes) {
    return *(const int64_t *)((const char *)attributes + ln_op_attribute(op, op->channel_axis - 1)->offset);
}

/* Tells whether the op's channels are the second dimension of its first operand. */
static inline bool ln_channels_first(const ln_op *op, const void *attributes) {
    return op->channel_axis > 0 && ln_channel_axis(op, attributes) == 1;
}

/* An opcode of map programs; ln_map_opcodes has one row per number. */
typedef struct ln_map_opcode_row {
    uint16_t name; /* offset of the name in ln_names; 0: there is no such opcode */
    uint8_t arity;
    uint8_t types; /* register types: 1 floats, 2 integers, 3 both */
    uint8_t work;  /* how many times as long as an addition it takes */
} ln_map_opcode_row;
static const ln_infer_facts ln_no_facts = {.most = -1, .indices = -1};

#endif
