/* verify_map.c - checks a map program once, so that no interpreter has to check opcodes, registers, types or operands.
 * schema/map_opcodes.toml defines the rules. */
#include "model/verify_map.h"

#include "model/structure_reader.h"
#include "generated/op_table.h"

typedef struct check {
    const ln_map_attributes *map;
    int n_inputs, n_outputs;
    const ln_tensor *inputs, *outputs;
    uint8_t *types;  /* [instruction]: type of the register that it writes; 0: it writes none */
    uint8_t *stored; /* [output]: whether the program stores it */
    int rank;        /* rank of the iteration shape; -1: unknown */
    linnet_error *error;
} check;

static linnet_status wrong(const check *c, int64_t at, const char *what) {
    int64_t opcode = c->map->program.v[at * LN_MAP_INSTRUCTION];
    int name = opcode > 0 && opcode < LN_MAP_LIMIT ? ln_map_opcodes[opcode].name : 0;
    ln_fail(c->error, LINNET_BAD_ATTRIBUTE, "map program: %s", what);
    ln_got(c->error, "instruction %lld (%s)", (long long)at, name ? ln_names + name : "unknown opcode");
    return ln_hint(c->error, "see Map opcodes in docs/ops.md"), LINNET_BAD_ATTRIBUTE;
}

static bool is_integer(int dtype) { return dtype >= LINNET_I8 && dtype <= LINNET_U64; }

static bool has_quant(const ln_tensor *t, int64_t dtype) {
    return t->quant && (t->quant->scheme == LN_QUANT_TENSOR || t->quant->scheme == LN_QUANT_AXIS) &&
           is_integer((int)dtype);
}

/* Returns the rank of the iteration shape; -1 if the rank of an input is unknown. Inputs that are used only as lookup
 * tables take no part in broadcasting. */
static int iteration_rank(const check *c, const uint8_t *loaded) {
    int rank = c->n_inputs ? 0 : (int)c->map->shape.n;
    for (int i = 0; i < c->n_inputs; i++) {
        if (!loaded[i]) continue;
        if (c->inputs[i].rank < 0) return -1;
        if (c->inputs[i].rank > rank) rank = c->inputs[i].rank;
    }
    return rank;
}

static linnet_status check_input(const check *c, int64_t at, int64_t input) {
    if (input < 0 || input >= c->n_inputs || c->inputs[input].dtype == LINNET_NONE)
        return wrong(c, at, "an instruction reads an input that the node does not have");
    return LINNET_OK;
}

static linnet_status check_store(const check *c, int64_t at, const int64_t *in) {
    bool quantized = in[0] == LN_MAP_STORE_QUANTIZED;
    if (c->types[in[2]] != in[1]) return wrong(c, at, "the dtype of a store differs from the dtype of its register");
    if (in[3] < 0 || in[3] >= c->n_outputs)
        return wrong(c, at, "an instruction stores to an output that the node does not have");
    if (c->stored[in[3]]) return wrong(c, at, "an output is stored twice");
    if (quantized && (in[1] != LINNET_F32 || !has_quant(&c->outputs[in[3]], c->map->dtypes.v[in[3]])))
        return wrong(c, at, "store_quantized needs an f32 register and an integer output with quantization");
    c->stored[in[3]] = 1;
    return LINNET_OK;
}

/* Makes the checks that are specific to one opcode. The operand registers have been checked already. */
static linnet_status check_special(const check *c, int64_t at, const int64_t *in) {
    const ln_map_attributes *map = c->map;
    linnet_status status;
    switch (in[0]) {
    case LN_MAP_LOAD:
        if ((status = check_input(c, at, in[2]))) return status;
        if (c->inputs[in[2]].dtype == LINNET_U32 && in[1] == LINNET_I32)
            return wrong(c, at, "a u32 input needs an i64 register");
        return LINNET_OK;
    case LN_MAP_LOAD_DEQUANTIZED:
        if ((status = check_input(c, at, in[2]))) return status;
        if (in[1] != LINNET_F32 || !has_quant(&c->inputs[in[2]], c->inputs[in[2]].dtype))
            return wrong(c, at, "load_dequantized needs an f32 register and an integer input with quantization");
        return LINNET_OK;
    case LN_MAP_STORE:
    case LN_MAP_STORE_QUANTIZED: return check_store(c, at, in);
    case LN_MAP_CONST:
        if (in[1] == LINNET_F32 || in[1] == LINNET_F64)
            return in[2] >= 0 && in[2] < map->floats.n ? LINNET_OK
                                                       : wrong(c, at, "the index of a float immediate is out of range");
        if (in[2] < 0 || in[2] >= map->integers.n)
            return wrong(c, at, "the index of an integer immediate is out of range");
        if (in[1] == LINNET_I32 && (map->integers.v[in[2]] < INT32_MIN || map->integers.v[in[2]] > INT32_MAX))
            return wrong(c, at, "an immediate does not fit in i32");
        return LINNET_OK;
    case LN_MAP_IOTA:
        if (in[2] < 0 || in[2] >= (c->rank < 0 ? LN_MAX_RANK : c->rank))
            return wrong(c, at, "the axis of iota is out of range for the iteration shape");
        return LINNET_OK;
    case LN_MAP_FIXED_MULTIPLY:
    case LN_MAP_FIXED_MULTIPLY_SINGLE:
        if (in[1] != LINNET_I32) return wrong(c, at, "fixed-point multiplication is defined for i32 only");
        if (in[3] < 0 || in[3] >= map->integers.n || in[4] < 0 || in[4] >= map->integers.n)
            return wrong(c, at, "the index of an integer immediate is out of range");
        if (map->integers.v[in[3]] < 0 || map->integers.v[in[3]] > INT32_MAX)
            return wrong(c, at, "the multiplier is not a Q31 number");
        if (map->integers.v[in[4]] < -30 || map->integers.v[in[4]] > 31)
            return wrong(c, at, "the shift is outside [-30, 31]");
        return LINNET_OK;
    case LN_MAP_TABLE:
        if ((status = check_input(c, at, in[3]))) return status;
        if (c->inputs[in[3]].rank >= 0 && (c->inputs[in[3]].rank != 1 || c->inputs[in[3]].dims[0] == 0))
            return wrong(c, at, "a lookup table must be a 1-D tensor that is not empty");
        return LINNET_OK;
    default: return LINNET_OK;
    }
}

/* Stores the types that the registers a, b and c of an instruction must have; 0: any type. */
static void operand_types(const int64_t *in, uint8_t wanted[3]) {
    uint8_t own = (uint8_t)in[1];
    wanted[0] = wanted[1] = wanted[2] = own;
    switch (in[0]) {
    case LN_MAP_STORE:
    case LN_MAP_STORE_QUANTIZED:
    case LN_MAP_CAST: wanted[0] = 0; break;
    case LN_MAP_SELECT:
    case LN_MAP_TABLE: wanted[0] = LINNET_I32; break;
    default: break;
    }
}

static linnet_status check_instruction(const check *c, int64_t at) {
    const int64_t *in = c->map->program.v + at * LN_MAP_INSTRUCTION;
    const ln_map_opcode_row *row;
    uint8_t wanted[3];
    if (in[0] <= 0 || in[0] >= LN_MAP_LIMIT || !ln_map_opcodes[in[0]].name) return wrong(c, at, "unknown opcode");
    row = &ln_map_opcodes[in[0]];
    if (in[1] != LINNET_F32 && in[1] != LINNET_F64 && in[1] != LINNET_I32 && in[1] != LINNET_I64)
        return wrong(c, at, "the dtype of a register must be f32, f64, i32 or i64");
    if (!(row->types & (in[1] == LINNET_F32 || in[1] == LINNET_F64 ? 1 : 2)))
        return wrong(c, at, "the opcode is not defined for this dtype");
    operand_types(in, wanted);
    for (int k = 0; k < row->arity; k++) {
        int64_t source = in[2 + k];
        if (source < 0 || source >= at || c->types[source] == 0)
            return wrong(c, at, "an instruction reads a register that has no value yet");
        if (wanted[k] && c->types[source] != wanted[k]) return wrong(c, at, "an operand register has the wrong dtype");
    }
    if (in[0] == LN_MAP_STORE || in[0] == LN_MAP_STORE_QUANTIZED)
        c->types[at] = 0;
    else if (in[0] >= LN_MAP_EQ && in[0] <= LN_MAP_IS_INF)
        c->types[at] = LINNET_I32;
    else
        c->types[at] = (uint8_t)in[1];
    return check_special(c, at, in);
}

linnet_status ln_verify_map(const ln_map_attributes *map, int n_inputs, const ln_tensor *inputs, int n_outputs,
                            const ln_tensor *outputs, ln_pool *temporary, linnet_error *error) {
    check c = {map, n_inputs, n_outputs, inputs, outputs, NULL, NULL, -1, error};
    uint8_t *loaded;
    int64_t count = map->program.n / LN_MAP_INSTRUCTION;
    if (map->program.n % LN_MAP_INSTRUCTION != 0 || count == 0 || count > LN_MAP_MOST_INSTRUCTIONS) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "map program: the length is wrong");
        ln_expected(error, "1 to %d instructions of %d integers", LN_MAP_MOST_INSTRUCTIONS, LN_MAP_INSTRUCTION);
        return ln_got(error, "%lld integers", (long long)map->program.n), LINNET_BAD_ATTRIBUTE;
    }
    if (map->dtypes.n != n_outputs) {
        ln_fail(error, LINNET_BAD_ATTRIBUTE, "map: `dtypes` must have one entry per output");
        ln_expected(error, "%d", n_outputs);
        return ln_got(error, "%lld", (long long)map->dtypes.n), LINNET_BAD_ATTRIBUTE;
    }
    for (int i = 0; i < n_outputs; i++) {
        int64_t dtype = map->dtypes.v[i];
        bool known = dtype > LINNET_NONE && dtype <= LINNET_BOOL;
        if (!known || (outputs[i].dtype != LINNET_NONE && outputs[i].dtype != dtype)) {
            ln_fail(error, LINNET_BAD_ATTRIBUTE, "map: `dtypes`[%d] differs from the dtype of the output tensor", i);
            ln_expected(error, "%s", outputs[i].dtype ? linnet_dtype_name(outputs[i].dtype) : "a dtype");
            return ln_got(error, "%s (%lld)", known ? linnet_dtype_name((int)dtype) : "none", (long long)dtype),
                   LINNET_BAD_ATTRIBUTE;
        }
    }
    if (map->shape.n > LN_MAX_RANK)
        return ln_fail(error, LINNET_BAD_ATTRIBUTE, "map: `shape` has more than %d dimensions", LN_MAX_RANK);
    for (int64_t i = 0; i < map->shape.n; i++)
        if (map->shape.v[i] < 0) return ln_fail(error, LINNET_BAD_ATTRIBUTE, "map: `shape` has a negative dimension");
    c.types = ln_pool_array(temporary, count, 1);
    c.stored = ln_pool_array(temporary, n_outputs, 1);
    loaded = ln_pool_array(temporary, n_inputs, 1);
    if (!c.types || !c.stored || !loaded)
        return ln_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory to check a map program");
    for (int64_t at = 0; at < count; at++) {
        const int64_t *in = map->program.v + at * LN_MAP_INSTRUCTION;
        if ((in[0] == LN_MAP_LOAD || in[0] == LN_MAP_LOAD_DEQUANTIZED) && in[2] >= 0 && in[2] < n_inputs)
            loaded[in[2]] = 1;
    }
    c.rank = iteration_rank(&c, loaded);
    for (int64_t at = 0; at < count; at++) {
        linnet_status status = check_instruction(&c, at);
        if (status) return status;
    }
    for (int i = 0; i < n_outputs; i++)
        if (!c.stored[i]) return ln_fail(error, LINNET_BAD_ATTRIBUTE, "map program: output %d is never stored", i);
    return LINNET_OK;
}
