/* op.h - the types of the op table (runtime_c/generated/op_table.*), and the interface of shape rules.
 * To add an op: schema/ops/NAME.toml, then runtime_c/ops/NAME.c with ln_infer_NAME and its reference kernel. */
#ifndef LN_OP_H
#define LN_OP_H

#include "base/error.h"
#include "base/types.h"

/* Marks what runs while a model is planned: it is compiled for size even where the folder's flags ask for speed. */
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

/* One attribute: its place in the flatbuffer table (slot) and in the C struct (offset). In the struct, floats are
 * double, all other scalars are int64_t, and lists are ln_ints, ln_floats or ln_text. */
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

/* Traits of ops, from schema/ops/NAME.toml. schema/README.md defines each of them. */
enum ln_op_flag {
    LN_OP_IN_PLACE = 1,       /* the first result may overwrite the first operand; in a map, any result any operand */
    LN_OP_EPILOGUE = 2,       /* a map of the result can be applied before it is stored */
    LN_OP_DATA_DEPENDENT = 4, /* a run determines dims of the result; the shape rule gives their bounds */
    LN_OP_CAN_FAIL = 8,       /* a run may fail because of the values of operands (indices, lengths, an axis) */
    LN_OP_COMPUTES_F32 = 16,  /* f16 and bf16 are only storage for the op, which may run in f32 between casts */
    LN_OP_EXACT = 32,         /* every kernel gives the same bits */
    LN_OP_CALLS = 64,         /* it calls functions of the file, which its attributes refer to */
    LN_OP_WRITES = 128,       /* it writes the variable that is its first operand */
    LN_OP_LOOKS_UP = 256,     /* it reads only selected parts of its first operand */
    LN_OP_REGISTERED = 512,   /* the host registers it with the model (kernel/user.h) */
    LN_OP_VARIES = 1024,      /* the same operands may give other results; never folded, never computed twice */
    LN_OP_BLOCKS = 2048       /* its operands and results may have quantization per block */
};
/* The preference of an operand for a physical layout. Channels-last applies where channels are the second dimension. */
enum ln_op_layout { LN_PREFER_FREE, LN_PREFER_DENSE, LN_PREFER_CHANNELS_LAST, LN_PREFER_FOLLOW };
/* Operations per result. The four values mean: one; the number of instructions in the map's program; one per element of
   the longest operand; one per element of its longest line. */
enum ln_op_work { LN_WORK_LINEAR, LN_WORK_PROGRAM, LN_WORK_PRODUCT, LN_WORK_LINES };

struct ln_op;

/* The attributes of all ops, and the names of attributes and opcodes one after another, each with its NUL. Offsets into
   the names replace pointers, because an offset takes 2 bytes in the library and a pointer takes 32 with its
   relocation. For the same reason ops and kernels contain their names. */
extern const ln_attribute ln_attributes[];
extern const char ln_names[];

/* Facts that a shape rule reports besides shapes. */
typedef struct ln_infer_facts {
    int64_t most;    /* data-dependent ops: the largest value of a dim that is -1; -1 if the operands do not determine
                        it */
    int64_t places;  /* the number of positions from which the indices select */
    int8_t indices;  /* number of the operand with the indices; -1: there is none, or several numbers form an index */
    bool from_start; /* negative indices are errors */
} ln_infer_facts;

/* A shape rule. It reads inputs: dims may be -1, rank may be -1, `data` is the value if known, and an absent optional
 * input has dtype LINNET_NONE. It sets dtype, rank and dims of every output; a dim that is not known yet is -1. Outputs
 * are zeroed on entry, except dtype and quant, which the file declares (LINNET_NONE during building); those of a
 * registered op have the declared shape. A rule overwrites the dtype if the op determines it. On bad operands it fails
 * with SHAPE_MISMATCH, WRONG_DTYPE or BAD_ATTRIBUTE; the caller adds node and names. Broadcasting an unknown dimension
 * with n > 1 gives n; broadcasting it with 1 gives unknown. */
typedef struct ln_infer {
    const struct ln_op *op;
    const void *attributes;
    int n_inputs;
    int n_outputs;
    const ln_tensor *inputs;
    ln_tensor *outputs;
    linnet_error *error;
    ln_infer_facts *facts; /* NULL: not requested. Starts as ln_no_facts; a rule fills in what its op has */
} ln_infer;

typedef linnet_status (*ln_infer_function)(const ln_infer *infer);

/* The layout (ln_op_layout) that a node wants for its operand `input`, or for its outputs if `input` is -1, for ops
 * whose attributes decide. `x` is the first operand; NULL: absent. */
typedef int (*ln_layout_function)(const void *attributes, const ln_tensor *x, int input);

/* Adds the work of a call to *counts (kernel/cost.h), whose bytes are those of the operands and results. It may correct
 * the bytes of an op that reads only parts of its operands. */
struct ln_call;
typedef struct ln_counts ln_counts;
typedef void (*ln_count_function)(const struct ln_call *call, ln_counts *counts);

typedef struct ln_op {
    char name[20]; /* "": there is no op with this number */
    uint16_t id;
    int8_t min_inputs, max_inputs; /* max -1: any number */
    int8_t min_outputs, max_outputs;
    uint16_t flags;       /* ln_op_flag */
    uint32_t dtypes;      /* one bit per linnet_dtype that the op is defined for */
    uint8_t family;       /* ln_op_family */
    uint8_t work;         /* ln_op_work */
    uint16_t absent;      /* one bit per operand, for ln_operand_bit: whether it may be absent */
    uint16_t decides;     /* one bit per operand: whether its value, not only its shape, may determine shapes */
    uint8_t layouts;      /* ln_op_layout, 2 bits each: of the first output, the first input, the second, the others */
    uint8_t channel_axis; /* 1 + the attribute with the axis of the channels; 0: none */
    uint8_t n_attributes;
    uint16_t first_attribute; /* in ln_attributes */
    uint16_t attributes_size;
    ln_infer_function infer;
    ln_layout_function layout; /* NULL: `layouts` says it */
    ln_count_function count;   /* NULL: one operation per element of the results */
} ln_op;

static inline const ln_attribute *ln_op_attribute(const ln_op *op, int i) {
    return &ln_attributes[op->first_attribute + i];
}

/* The bit of operand i. The last bit of a mask also applies to all operands after it. */
static inline bool ln_operand_bit(uint16_t mask, int i) { return mask >> (i < 15 ? i : 15) & 1; }

/* The node's attribute channel_axis, of an op that has one. */
static inline int64_t ln_channel_axis(const ln_op *op, const void *attributes) {
    return *(const int64_t *)((const char *)attributes + ln_op_attribute(op, op->channel_axis - 1)->offset);
}

/* Whether the op's channels are the second dimension of its first operand. */
static inline bool ln_channels_first(const ln_op *op, const void *attributes) {
    return op->channel_axis > 0 && ln_channel_axis(op, attributes) == 1;
}

typedef struct ln_map_opcode_row {
    uint16_t name; /* in ln_names; 0: there is no such opcode */
    uint8_t arity;
    uint8_t types; /* register types: 1 floats, 2 integers, 3 both */
    uint8_t work;  /* how many times as long as an addition it takes */
} ln_map_opcode_row;
static const ln_infer_facts ln_no_facts = {.most = -1, .indices = -1};

#endif
