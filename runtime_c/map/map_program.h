/* map_program.h - a map program compiled for strips. A strip is a few hundred elements; each register holds one strip,
 * and all registers together stay in the L1 cache. map_compile.c compiles the program at plan time, and the interpreter
 * of an ISA (map_strip.inc.c) runs it. */
#ifndef LN_MAP_PROGRAM_H
#define LN_MAP_PROGRAM_H

#include "base/memory.h"
#include "kernel/map.h"

/* How one operand is traversed in iteration order. The outermost dim comes first, and dims that are adjacent in memory
 * are merged. rank >= 1. */
typedef struct ln_map_view {
    int32_t operand; /* number of the input, or n_inputs + number of the output; -1: `data`, which is NULL for iota */
    uint8_t dtype;
    uint8_t rank;
    bool iota; /* nothing is read: the value of an element is its offset */
    const void *data;
    int64_t dims[LN_MAX_RANK];
    int64_t strides[LN_MAX_RANK];
} ln_map_view;

/* Flags of ln_map_step.direct. LOAD and STORE: in strips of whole groups of 16 elements, the register is the operand's
 * memory itself, so nothing is copied. */
enum ln_map_direct {
    LN_MAP_DIRECT_LOAD = 1,
    LN_MAP_DIRECT_STORE = 2,
    LN_MAP_DIRECT_REPEAT = 4 /* the operand is equal in every strip, so it is loaded once, before the first strip */
};

/* How a store converts a float to an integer. CUT truncates. The others are for quantized stores. PRODUCT is for scales
 * that are powers of two: it multiplies by the inverse of the scale and rounds. QUOTIENT is for very large and very
 * small scales: it divides and rounds. NEAREST is for all other scales: it clamps, then divides and rounds. */
enum ln_map_rounding { LN_MAP_CUT, LN_MAP_PRODUCT, LN_MAP_QUOTIENT, LN_MAP_NEAREST };

/* The opcode of an activation in a compiled program (map_activations.inc.c). It shares its number with SIGMOID;
 * ln_map_step.activation tells them apart. Programs in files have no activations. */
#define LN_MAP_ACTIVATION LN_MAP_SIGMOID

/* One step of a compiled program: an instruction, a load or a store. Which union member is valid depends on `code`. */
typedef struct ln_map_step {
    uint8_t code; /* ln_map_opcode */
    uint8_t type; /* type of the registers that the step reads; of loads and casts: of the register that it writes */
    uint8_t from; /* of casts: type of register a; of stores: type of the register that is stored */
    uint8_t direct : 6; /* ln_map_direct */
    uint8_t once : 1;   /* only the next step reads register y, so the value need not be in memory */
    uint8_t same : 1;   /* all elements of register b are equal */
    int16_t y, a, b, c; /* registers */
    int16_t view;       /* of loads, stores and tables: index of the view */
    union {
        struct {
            int32_t zero;         /* of quantized loads and stores: the zero point */
            int32_t how;          /* of quantized stores: ln_map_rounding */
            float scale, inverse; /* of quantized loads and stores: the scale, and 1 / scale */
            float least, most;    /* of quantized stores: the limits of the stored integers minus the zero point; with
                                     NEAREST, also times the scale */
        };
        struct {
            int32_t activation; /* LN_MAP_ACTIVATION: number of the activation, from 1; 0: a plain SIGMOID */
            float constants[4];
        };
        struct {
            int32_t multiplier, shift; /* fixed_multiply */
        };
    };
} ln_map_step;
/* The longest program that is compiled, in instructions. Each instruction takes at most three registers and views,
 * whose numbers are int16_t. The reference runs longer programs. */
enum { LN_MAP_COMPILED_MOST = INT16_MAX / 3 - 1 };
_Static_assert(sizeof(ln_map_step) % 8 == 0, "the views of a compiled program follow its steps");

/* The sum of two 8-bit tensors that are quantized as TensorFlow Lite defines it. One operand has a larger or equal
 * scale: its product is exactly half of (x - zero) * factor, and its `factor` here is that half. The other one's is
 * ln_map_fixed_multiply((x - zero) * factor, multiplier, right). Factors are multiples of 2^LN_MAP_SUM_SHIFT. u8
 * elements count as i8 elements that are smaller by `turn` = 128. */
enum { LN_MAP_SUM_SHIFT = 15 };
typedef struct ln_map_term {
    int32_t operand, zero, factor, multiplier, right;
} ln_map_term;
typedef struct ln_map_sum {
    ln_map_term halved, scaled;
    int32_t multiplier, right, zero, low, high; /* of the result */
    int32_t turn;
} ln_map_sum;

/* A compiled program. ln_map_keep puts it into call->state; it does not change in a run. */
typedef struct ln_map_program {
    int32_t n_steps, n_views, n_inputs;
    int32_t n_slots;     /* number of registers in scratch */
    int32_t n_registers; /* n_slots, and the constants, whose registers come after the slots */
    int32_t strip;       /* number of elements in a strip, a multiple of 16 */
    uint32_t register_bytes;
    uint32_t scratch_bytes; /* per thread: the pointers of the registers, and the slots */
    const ln_map_step *steps;
    const ln_map_view *views;
    const char *constants; /* each constant, repeated for a whole strip */
    int64_t count;         /* number of elements in the iteration shape; 0 for an epilogue */
    const uint8_t *table;  /* 256 entries: the whole program as a lookup table for an 8-bit input. The program then has
                              no steps, views or constants. NULL: none */
    int32_t table_input;   /* with a table: number of the operand that is looked up */
    const ln_map_sum
        *sum; /* the whole program, if it is a sum that the ISA computes; then as with a table. NULL: none */
} ln_map_program;

struct ln_map_source;

/* Runs one strip: elements [start, start + n) in iteration order, n <= strip. `registers` are those of
 * ln_map_registers. bases[v] is the beginning of view v in memory; NULL: an output that is absent, or an iota. */
typedef void (*ln_map_strip)(const ln_map_program *p, const ln_map_view *views, char *const *bases, int64_t start,
                             int n, char **registers);
/* The functions of maps that are compiled once per ISA. */
typedef struct ln_map_isa {
    ln_map_strip strip;
    /* Computes min(max(x, low), high) of rows x columns floats. */
    void (*clamp)(const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t rows, int64_t columns,
                  float low, float high);
    /* Computes min(max(x + added, low), high) and stores the result as f16 or bf16. `added` has this type and the
     * stride of y, and may be the memory of y. NULL: nothing is added. */
    void (*half_sum)(int dtype, const float *x, int64_t x_stride, const uint16_t *added, uint16_t *y, int64_t y_stride,
                     int64_t rows, int64_t columns, float low, float high);
    /* Stores n floats as contiguous elements of any type. */
    void (*store)(int dtype, const float *x, int n, void *y);
    /* Computes n elements of a sum. y may be a or b. NULL if the ISA has no loop for sums. */
    void (*sum)(const ln_map_sum *sum, const uint8_t *halved, const uint8_t *scaled, uint8_t *y, int64_t n);
    int lanes; /* floats in a vector */
    /* Computes the activation of a step on rows of floats. y may be x. NULL if the ISA has no activations. */
    void (*activate)(const ln_map_step *step, const float *x, int64_t x_stride, float *y, int64_t y_stride,
                     int64_t rows, int64_t columns);
    /* Replaces sequences of instructions that compute an activation by one instruction each, in a new program in
     * `pool`. Leaves the source as it is if there are none. NULL if the ISA has no activations. */
    linnet_status (*find_activations)(struct ln_map_source *source, ln_pool *pool);
} ln_map_isa;
/* Returns the functions with the widest vectors that these features permit. */
const ln_map_isa *ln_map_isa_for(ln_features features);

/* The input of the compiler: a program and its operands. The views of an epilogue (tile_input >= 0) get their dims only
 * when the epilogue is applied (fast/gemm/epilogue.c). */
typedef struct ln_map_source {
    const ln_map_attributes *map;
    const ln_tensor *inputs; /* the inputs of the map */
    int n_inputs;
    const ln_tensor *outputs;
    int n_outputs;
    int tile_input;   /* -1: the map is a node, not an epilogue */
    int column_axis;  /* epilogue: the axis of the columns */
    int most_bytes;   /* limit for scratch; the strip is shortened to fit */
    bool activations; /* the f32 opcodes LN_MAP_ACTIVATION of the program are activations, not sigmoids */
} ln_map_source;
/* A cast, quantize or dequantize as a map. The struct must not be moved, because it holds pointers to its own members;
 * others point to the call's tensors. */
typedef struct ln_convert_program {
    int64_t program[100];
    double floats[2];
    int n;
    ln_map_attributes attributes;
    ln_tensor inputs[3], output;
    ln_quant quant;
    float scale;
    int32_t zero;
} ln_convert_program;

#endif
