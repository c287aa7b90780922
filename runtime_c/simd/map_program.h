/* map_program.h - a map program compiled for strips: registers are arrays of a few hundred elements that stay in L1.
 * Made by ops/map_compile.c at plan time, run by the interpreter in map_strip.inc.c of each ISA. */
#ifndef LN_MAP_PROGRAM_H
#define LN_MAP_PROGRAM_H

#include "core/map.h"

/* How one operand is walked in iteration order: dims outermost first, neighbours merged; rank >= 1. */
typedef struct ln_map_view {
    int32_t operand; /* input number, n_inputs + output number, or -1: `data` (iota: NULL) */
    uint8_t dtype;
    uint8_t rank;
    bool iota; /* the element is its own offset */
    const void *data;
    int64_t dims[LN_MAX_RANK];
    int64_t strides[LN_MAX_RANK];
} ln_map_view;

enum ln_map_direct {
    LN_MAP_DIRECT_LOAD = 1,
    LN_MAP_DIRECT_STORE = 2,
    LN_MAP_DIRECT_REPEAT = 4 /* the same in every strip: loaded before the first */
};

/* How a store makes an integer of a float: cut; rounded after a product with the inverse of a scale that is a power of
 * two; rounded after a division; or the same of a number that was clamped before, for all scales that are not extreme.
 */
enum ln_map_rounding { LN_MAP_CUT, LN_MAP_PRODUCT, LN_MAP_QUOTIENT, LN_MAP_NEAREST };

typedef struct ln_map_step {
    uint8_t code;              /* ln_map_opcode */
    uint8_t type;              /* of the registers read (of the result for loads and casts) */
    uint8_t from;              /* cast: type of register a; store: type of the register */
    uint8_t direct;            /* full strips: the register is the memory itself, and nothing is moved */
    int32_t y, a, b, c;        /* registers */
    int32_t view;              /* loads, stores, tables */
    int32_t zero;              /* quantized loads and stores */
    int32_t how;               /* quantized stores: ln_map_rounding */
    float scale, inverse;      /* quantized loads and stores: scale, 1 / scale */
    float least, most;         /* quantized stores: the range without the zero point, times scale for LN_MAP_NEAREST */
    int32_t multiplier, shift; /* fixed_multiply */
} ln_map_step;

typedef struct ln_map_program {
    int32_t n_steps, n_views, n_inputs;
    int32_t n_slots;     /* registers in scratch */
    int32_t n_registers; /* and the constants after them */
    int32_t strip;       /* elements, a multiple of 16 */
    uint32_t register_bytes;
    uint32_t scratch_bytes;
    const ln_map_step *steps;
    const ln_map_view *views;
    const char *constants; /* filled for a whole strip */
    int64_t count;         /* elements of the iteration shape */
    const uint8_t *table;  /* 256 entries: the whole program as a look-up of bytes; NULL: none */
    int32_t table_view[2]; /* input, output */
} ln_map_program;

/* One strip: elements [start, start + n) in iteration order, n <= strip. `registers` was set up by ln_map_registers.
 * bases[v] is where view v begins. */
typedef void (*ln_map_strip)(const ln_map_program *p, const ln_map_view *views, char *const *bases, int64_t start,
                             int n, char **registers);

/* Lays pointers and strips out in scratch (64-byte aligned, p->scratch_bytes). */
char **ln_map_registers(const ln_map_program *p, void *scratch);
/* What an ISA level brings; the best at or below `isa`. */
typedef struct ln_map_isa {
    ln_map_strip strip;
    /* min(max(x, low), high) of rows x columns floats. */
    void (*clamp)(const float *x, int64_t x_stride, float *y, int64_t y_stride, int64_t rows, int64_t columns,
                  float low, float high);
    /* n floats to neighbours of any element type. */
    void (*store)(int dtype, const float *x, int n, void *y);
} ln_map_isa;
const ln_map_isa *ln_map_isa_for(int isa);

/* Compilation. The views of an epilogue (tile_input >= 0) get their dims when it is applied (map_epilogue.c). */
typedef struct ln_map_source {
    const ln_map_attributes *map;
    const ln_tensor *inputs; /* of the map */
    int n_inputs;
    const ln_tensor *outputs;
    int n_outputs;
    int tile_input;  /* -1: a node of its own */
    int column_axis; /* epilogue: the axis that is the columns */
    int most_bytes;  /* of scratch; the strip is made shorter to fit */
} ln_map_source;
/* False when the program needs something that only the reference does. */
bool ln_map_compilable(const ln_map_source *source);
linnet_status ln_map_compile(const ln_map_source *source, ln_call *call, ln_map_program **out);
/* Makes the look-up table when that is possible and worth it. */
linnet_status ln_map_tabulate(ln_map_program *p, ln_call *call, int isa);

/* Shared by all ISAs (ops/map_rest.c): any memory type to any register type and back, and the rarer opcodes. */
void ln_map_load_any(int dtype, int type, const void *data, int64_t offset, int64_t stride, int n, void *y);
void ln_map_store_any(int dtype, int type, const void *register_, int n, void *data, int64_t offset, int64_t stride);
void ln_map_rest(const ln_map_step *step, int n, const void *a, const void *b, const void *c, void *y);
/* Every arithmetic opcode on n elements: in plain C (ops/map_scalar.c),
 * and by groups of 16 in vectors (simd/map.inc.c); with AVX-512 loads are those of AVX2. */
#define LN_MAP_PARTS(isa)                                                                                              \
    void ln_map_arithmetic__##isa(const ln_map_step *step, int n, const void *a, const void *b, const void *c,         \
                                  void *y);                                                                            \
    void ln_map_count__##isa(int type, int64_t first, int64_t stride, int n, void *y);                                 \
    void ln_map_narrow__##isa(int dtype, const int32_t *w, int n, void *y);                                            \
    void ln_map_store_small__##isa(const ln_map_step *step, int dtype, const float *a, int n, char *p);                \
    void ln_map_load__##isa(const ln_map_step *step, const ln_map_view *view, const char *base, int64_t start, int n,  \
                            char *y);                                                                                  \
    void ln_map_table__##isa(const ln_map_step *step, const ln_map_view *view, const char *base, int n,                \
                             const int32_t *a, void *y);
LN_MAP_PARTS(scalar)
LN_MAP_PARTS(sse2)
LN_MAP_PARTS(avx2)
LN_MAP_PARTS(avx512)
LN_MAP_PARTS(neon)
#undef LN_MAP_PARTS

/* Kernel functions over any strip interpreter (ops/map_kernel.c). */
bool ln_map_supports(const ln_call *call);
linnet_status ln_map_configure(ln_call *call, int isa);
linnet_status ln_map_run(const ln_call *call, const ln_buffers *b, int64_t begin, int64_t end, int thread,
                         ln_map_strip strip);
/* cast, quantize and dequantize as map programs (ops/map_convert.c); they run by ln_map_run. */
bool ln_convert_supports(const ln_call *call);
linnet_status ln_convert_configure(ln_call *call);

#endif
