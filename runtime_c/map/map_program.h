/* map_program.h - a map program compiled for strips: registers are arrays of a few hundred elements that stay in L1.
 * map/map_compile.c creates it at plan time; the interpreter in map_strip.inc.c of each ISA runs it. */
#ifndef LN_MAP_PROGRAM_H
#define LN_MAP_PROGRAM_H

#include "base/memory.h"
#include "kernel/map.h"

/* How one operand is traversed in iteration order: dims with the outermost first, adjacent dims merged; rank >= 1. */
typedef struct ln_map_view {
    int32_t operand; /* input number, n_inputs + output number, or -1: `data` (iota: NULL) */
    uint8_t dtype;
    uint8_t rank;
    bool iota; /* the value of an element is its offset */
    const void *data;
    int64_t dims[LN_MAX_RANK];
    int64_t strides[LN_MAX_RANK];
} ln_map_view;

enum ln_map_direct {
    LN_MAP_DIRECT_LOAD = 1,
    LN_MAP_DIRECT_STORE = 2,
    LN_MAP_DIRECT_REPEAT = 4 /* the same in every strip, so it is loaded once, before the first strip */
};

/* How a store converts a float to an integer. CUT: truncates. PRODUCT: multiplies by the inverse of a scale that is a
 * power of two, then rounds. QUOTIENT: divides, then rounds. NEAREST: clamps first, then divides and rounds; used for
 * all scales that are not extreme. */
enum ln_map_rounding { LN_MAP_CUT, LN_MAP_PRODUCT, LN_MAP_QUOTIENT, LN_MAP_NEAREST };

/* An activation of map_activations.inc.c. Programs in files have no such opcode. */
#define LN_MAP_ACTIVATION LN_MAP_SIGMOID

typedef struct ln_map_step {
    uint8_t code;       /* ln_map_opcode */
    uint8_t type;       /* type of the registers that are read (for loads and casts: of the result) */
    uint8_t from;       /* cast: type of register a; store: type of the register */
    uint8_t direct : 6; /* in full strips the register is the operand's memory itself, so nothing is copied */
    uint8_t once : 1;   /* only the next step reads register y */
    uint8_t same : 1;   /* all elements of register b are equal */
    int16_t y, a, b, c; /* registers */
    int16_t view;       /* loads, stores, tables */
    union {
        struct {
            int32_t zero;         /* quantized loads and stores */
            int32_t how;          /* quantized stores: ln_map_rounding */
            float scale, inverse; /* quantized loads and stores: scale, 1 / scale */
            float least, most;    /* quantized stores: the range minus the zero point, times scale for LN_MAP_NEAREST */
        };
        struct {
            int32_t activation; /* LN_MAP_ACTIVATION: number of the activation, from 1 */
            float constants[4];
        };
        struct {
            int32_t multiplier, shift; /* fixed_multiply */
        };
    };
} ln_map_step;
/* Longer programs are left to the reference: each instruction takes at most three registers and views. */
enum { LN_MAP_COMPILED_MOST = INT16_MAX / 3 - 1 };
_Static_assert(sizeof(ln_map_step) % 8 == 0, "the views of a compiled program follow its steps");

typedef struct ln_map_program {
    int32_t n_steps, n_views, n_inputs;
    int32_t n_slots;     /* number of registers in scratch */
    int32_t n_registers; /* number of registers in scratch and of the constants after them */
    int32_t strip;       /* number of elements, a multiple of 16 */
    uint32_t register_bytes;
    uint32_t scratch_bytes;
    const ln_map_step *steps;
    const ln_map_view *views;
    const char *constants; /* constants, repeated for a whole strip */
    int64_t count;         /* number of elements in the iteration shape */
    const uint8_t *table;  /* 256 entries: the whole program as a lookup table for 8-bit inputs, without steps, views
                              and constants; NULL: none */
    int32_t table_input;   /* number of the operand that the table looks up */
} ln_map_program;

struct ln_map_source;

/* Runs one strip: elements [start, start + n) in iteration order, n <= strip. ln_map_registers has set up `registers`.
 * bases[v] is the beginning of view v. */
typedef void (*ln_map_strip)(const ln_map_program *p, const ln_map_view *views, char *const *bases, int64_t start,
                             int n, char **registers);
/* The functions for a set of features, with the widest vectors. */
typedef struct ln_map_isa {
    ln_map_strip strip;
    /* Computes min(max(x, low), high) of rows x columns floats. */
    void (*clamp)(const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t rows, int64_t columns,
                  float low, float high);
    /* Computes min(max(x + added, low), high) and stores it as f16 or bf16. `added` has this type and the stride of y;
     * NULL: nothing is added. It may be the memory of y. */
    void (*half_sum)(int dtype, const float *x, int64_t x_stride, const uint16_t *added, uint16_t *y, int64_t y_stride,
                     int64_t rows, int64_t columns, float low, float high);
    /* Stores n floats as contiguous elements of any type. */
    void (*store)(int dtype, const float *x, int n, void *y);
    int lanes; /* floats in a vector */
    /* NULL without activations. Computes the activation of a step on rows of floats; the results may overwrite them. */
    void (*activate)(const ln_map_step *step, const float *x, int64_t x_stride, float *y, int64_t y_stride,
                     int64_t rows, int64_t columns);
    /* Gives the source a program in which single instructions compute activations, if there are any. */
    linnet_status (*find_activations)(struct ln_map_source *source, ln_pool *pool);
} ln_map_isa;
const ln_map_isa *ln_map_isa_for(ln_features features);

/* The input of compilation. The views of an epilogue (tile_input >= 0) get their dims when it is applied
 * (map_epilogue.c). */
typedef struct ln_map_source {
    const ln_map_attributes *map;
    const ln_tensor *inputs; /* of the map */
    int n_inputs;
    const ln_tensor *outputs;
    int n_outputs;
    int tile_input;   /* -1: the map is a node, not an epilogue */
    int column_axis;  /* epilogue: the axis of the columns */
    int most_bytes;   /* limit for scratch; the strip is shortened to fit */
    bool activations; /* the f32 opcodes LN_MAP_ACTIVATION of the program are activations */
} ln_map_source;
/* cast, quantize or dequantize as a map. Pointers in it refer to the struct itself and to the call's tensors. */
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
