/* map_source.c - writes map programs as source text of C, OpenCL C or CUDA C, for devices (linnet_device.h).
 * The texts of expressions and functions are generated from those that the interpreters compile (map_source.inc). */
#include "base/structs.h"
#include "generated/op_table.h"
#include "kernel/common/convert.h"
#include "kernel/common/quant_operands.h"
#include "kernel/map.h"
#include "kernel/step.h"
#include "map/map_convert.h"
#include "map/map_program.h"
#include "map/map_shape.h"
#include "map/source_text.h"
#include "map/source_writer.h"

#include <stdio.h>
#include <string.h>

#ifdef LN_WITHOUT_DEVICES

linnet_status linnet_step_map_source(const linnet_step *step, const linnet_source_options *options, char *text,
                                     size_t size, size_t *length) {
    (void)step, (void)options, (void)text, (void)size, (void)length;
    return LINNET_UNSUPPORTED;
}

linnet_status linnet_map_prelude(const linnet_source_options *options, const char *uses, char *text, size_t size,
                                 size_t *length) {
    (void)options, (void)uses, (void)text, (void)size, (void)length;
    return LINNET_UNSUPPORTED;
}

#else

#include "generated/map_source.inc"

enum { FIRST_FUNCTION = 128, FUNCTIONS = 110 };

/* The text that each language needs: the types ln_i8 to ln_i64, then ln_u8 to ln_u64, then definitions. A function that
 * is defined here and also in source_functions is written only once, as it is here. */
static const char *const types[] = {
    "int8_t\0int16_t\0int32_t\0int64_t\0uint8_t\0uint16_t\0uint32_t\0uint64_t",
    "char\0short\0int\0long\0uchar\0ushort\0uint\0ulong",
    "signed char\0short\0int\0long long\0unsigned char\0unsigned short\0unsigned\0unsigned long long",
};
static const char *const definitions[] = {
    "#ifdef __clang__\n#pragma STDC FP_CONTRACT OFF\n#endif\n"
    "#define LN_FN static inline\n#define ln_inf INFINITY\n#define ln_nan NAN\n",
    "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64:enable\n#endif\n"
    "#define LN_FN static inline\n#define ln_inf INFINITY\n#define ln_nan NAN\n"
    "#define ln_bits_f as_uint\n#define ln_from_bits_f as_float\n"
    "#define ln_bits_d as_ulong\n#define ln_from_bits_d as_double\n#define sqrtf sqrt\n#define fmodf fmod\n"
    "LN_FN float ln_f16_to_f32(ln_u16 h){return vload_half(0,(const half*)&h);}\n"
    "LN_FN ln_u16 ln_f32_to_f16(float f){ln_u16 h;vstore_half_rte(f,0,(half*)&h);return h;}\n",
    "#define LN_FN static __device__ __forceinline__\n"
    "#define ln_inf __int_as_float(0x7f800000)\n#define ln_nan __int_as_float(0x7fffffff)\n"
    "#define ln_bits_f(x) ((ln_u32)__float_as_int(x))\n#define ln_from_bits_f(x) __int_as_float((int)(x))\n"
    "#define ln_bits_d(x) ((ln_u64)__double_as_longlong(x))\n"
    "#define ln_from_bits_d(x) __longlong_as_double((ln_i64)(x))\n"
    "LN_FN float ln_f16_to_f32(ln_u16 h){float f;asm(\"cvt.f32.f16 %0,%1;\":\"=f\"(f):\"h\"(h));return f;}\n"
    "LN_FN ln_u16 ln_f32_to_f16(float f){ln_u16 h;asm(\"cvt.rn.f16.f32 %0,%1;\":\"=h\"(h):\"f\"(f));return h;}\n",
};

/* Returns the number of the word that a byte of a shortened text stands for; -1: the byte is a plain character
 * (schema/map_source.py). */
static int word_of(unsigned char c) {
    if (c < ' ') return c < 3 || c == '\n' ? -1 : c - (c < '\n' ? 3 : 4);
    if (c >= FIRST_FUNCTION + FUNCTIONS) return c - (FIRST_FUNCTION + FUNCTIONS) + 54;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 28 : -1;
}

/* Writes a shortened text; a and b are registers. */
static void expand(ln_writer *w, const char *text, int64_t a, int64_t b) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (word_of(c) >= 0)
            expand(w, ln_nth(source_words, word_of(c)), a, b);
        else if (c >= FIRST_FUNCTION)
            ln_put(w, "ln_%s", ln_nth(source_names, c - FIRST_FUNCTION));
        else if (c < 3)
            ln_put(w, "ln_%lld", (long long)(c == 1 ? a : b));
        else
            ln_put_char(w, *text);
    }
}

/* ---- the prelude ------------------------------------------------------------------------------------------------- */

static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Tells whether a text contains the word ln_NAME. */
static bool mentions(const char *text, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, "ln_")) != NULL; at += 3)
        if ((at == text || !word_char(at[-1])) && strncmp(at + 3, name, n) == 0 && !word_char(at[3 + n])) return true;
    return false;
}

linnet_status linnet_map_prelude(const linnet_source_options *options, const char *uses, char *text, size_t size,
                                 size_t *length) {
    linnet_source_options own;
    linnet_status status = ln_source_take(options, &own, text, size, length);
    if (status != LINNET_OK || uses == NULL) return status != LINNET_OK ? status : LINNET_INVALID_ARGUMENT;
    ln_writer w = {.text = text, .size = size};
    bool needed[FUNCTIONS] = {false};
    const char *bodies[FUNCTIONS], *head = definitions[own.language];
    int count = 0;
    for (const char *body = source_functions; body < source_functions + sizeof source_functions - 1;
         body += strlen(body) + 1)
        bodies[count++] = body;
    /* A function comes after the functions that it calls, so callers are seen first in this order. */
    for (int i = count - 1; i >= 0; i--) {
        needed[i] = needed[i] || mentions(uses, ln_nth(source_names, i));
        if (!needed[i] || (own.native && bodies[i][0] == 1)) continue;
        for (const char *c = bodies[i]; *c; c++)
            if ((unsigned char)*c >= FIRST_FUNCTION && word_of((unsigned char)*c) < 0)
                needed[(unsigned char)*c - FIRST_FUNCTION] = true;
    }
    if (own.language == LINNET_SOURCE_C)
        ln_put_all(&w, "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n");
    for (int i = 0; i < 8; i++)
        ln_put(&w, "typedef %s ln_%c%d;\n", ln_nth(types[own.language], i), i < 4 ? 'i' : 'u', 8 << i % 4);
    ln_put_all(&w, head);
    for (int i = 0; i < count; i++) {
        const char *name = ln_nth(source_names, i);
        if (!needed[i] || mentions(head, name)) continue;
        if (own.native && bodies[i][0] == 1) {
            ln_put(&w, "#define ln_%s %.*s%s\n", name, (int)strlen(name) - 2, name,
                   own.language == LINNET_SOURCE_OPENCL ? "" : "f");
            continue;
        }
        ln_put(&w, "LN_FN ");
        ln_contract_nothing(&w, own.language);
        expand(&w, bodies[i] + (bodies[i][0] == 1), 0, 0);
        ln_put_char(&w, '\n');
    }
    ln_put_end(&w, length);
    return LINNET_OK;
}

/* ---- a program --------------------------------------------------------------------------------------------------- */

typedef struct program {
    ln_writer w;
    const linnet_step *step;
    const ln_map_attributes *map;
    const ln_epilogue *epilogue; /* NULL: the step is a map */
    const ln_tensor *inputs, *outputs;
    const char *prefix;
    bool names;     /* scales and zero points per tensor have names (linnet_source_options.quantization_names) */
    bool constants; /* constants have names (linnet_source_options.constant_names) */
    bool unknown;   /* the program has an opcode that map_table.h does not define */
} program;

static const char *register_name(int type) {
    return type == LINNET_F32 ? "float" : type == LINNET_F64 ? "double" : type == LINNET_I32 ? "ln_i32" : "ln_i64";
}

static const ln_tensor *input_of(const program *p, int i) {
    const ln_call *call = &p->step->call;
    if (p->epilogue == NULL) return &p->inputs[i];
    return i == p->epilogue->tile_input ? call->inner : &call->inputs[call->n_inputs + p->epilogue->operand[i]];
}

/* Returns the dtype that input i has in the text. */
static int input_dtype(const program *p, int i) {
    const int dtype = input_of(p, i)->dtype;
    const bool result = p->epilogue != NULL && i == p->epilogue->tile_input;
    return result && ln_dtype_is_float(dtype) && dtype != LINNET_F64 ? LINNET_F32 : dtype;
}

/* Writes `text`, an element of dtype `from`, converted to a register type. */
static void put_loaded(program *p, int from, int to, const char *text) {
    const bool half = from == LINNET_F16 || from == LINNET_BF16, integer = to == LINNET_I32 || to == LINNET_I64;
    const char *close = "";
    if (from == to || from == LINNET_BOOL) {
        ln_put(&p->w, from == to ? "%s" : "%s!=0", text);
        return;
    }
    if (ln_dtype_is_float(from) && integer) {
        ln_put(&p->w, "ln_%c_to_%c(", from == LINNET_F64 ? 'd' : 'f', to == LINNET_I32 ? 'i' : 'l');
        close = ")";
    } else if (!half || to != LINNET_F32) {
        ln_put(&p->w, "(%s)", register_name(to));
    }
    if (half)
        ln_put(&p->w, "ln_%s_to_f32(%s)%s", from == LINNET_F16 ? "f16" : "bf16", text, close);
    else
        ln_put(&p->w, "%s%s", text, close);
}

/* Writes a register of type `from` as an element of dtype `to`. */
static void put_stored(program *p, int from, int to, int64_t register_) {
    const long long r = register_;
    const bool real = from == LINNET_F32 || from == LINNET_F64;
    const char kind = from == LINNET_F64 ? 'd' : from == LINNET_F32 ? 'f' : 'l';
    int64_t low, high;
    if (to == LINNET_BOOL) {
        ln_put(&p->w, "ln_%lld!=0", r);
    } else if (to == LINNET_F16 || to == LINNET_BF16) {
        ln_put(&p->w, "ln_f32_to_%s(", to == LINNET_F16 ? "f16" : "bf16");
        ln_put(&p->w, kind == 'f' ? "ln_%lld)" : kind == 'd' ? "ln_d_to_odd(ln_%lld))" : "ln_l_to_odd(ln_%lld))", r);
    } else if (from == to) {
        ln_put(&p->w, "ln_%lld", r);
    } else if (!real || to == LINNET_F32 || to == LINNET_F64) {
        ln_put(&p->w, "(%s)ln_%lld", ln_source_element(to), r);
    } else if (to == LINNET_U64) {
        ln_put(&p->w, "ln_d_to_u64((double)ln_%lld)", r);
    } else if (to == LINNET_I32 || to == LINNET_I64) {
        ln_put(&p->w, "ln_%c_to_%c(ln_%lld)", kind, to == LINNET_I32 ? 'i' : 'l', r);
    } else {
        const char width = to == LINNET_U32 ? 'l' : 'i';
        ln_quant_range(to, 0, &low, &high);
        ln_put(&p->w, "(%s)ln_clamp_%c(ln_%c_to_%c(ln_%lld),%lld,%lld)", ln_source_element(to), width, kind, width, r,
               (long long)low, (long long)high);
    }
}

/* Tells whether the operand's quantization is the one that the device sees. The program of a conversion may have
 * operands with a quantization of its own (map_convert.c), which the device cannot name. */
static bool has_names(const program *p, const ln_tensor *t, char operand, int number) {
    const ln_call *call = &p->step->call;
    return p->names && t->quant->count == 1 && (operand == 'x' || t->quant == call->outputs[number].quant);
}

/* Writes the scale (or the zero point) for the element: a number, its name, or an entry of the array `xN_scale`. */
static void put_quant(program *p, const ln_tensor *t, char operand, int number, bool zero) {
    const int rank = p->step->call.outputs[0].rank, axis = ln_axis(t->quant->axis, t->rank);
    uint32_t bits;
    if (has_names(p, t, operand, number)) {
        ln_put(&p->w, "%s%c%d_%s", p->prefix, operand, number, zero ? "zero" : "scale");
    } else if (zero && t->quant->zero == NULL) {
        ln_put(&p->w, "0");
    } else if (t->quant->scheme == LN_QUANT_AXIS && axis >= 0 && t->dims[axis] != 1) {
        ln_put(&p->w, "%s%c%d_%s[%si%d]", p->prefix, operand, number, zero ? "zero" : "scale", p->prefix,
               rank - t->rank + axis);
    } else if (zero) {
        ln_put(&p->w, "%d", (int)t->quant->zero[0]);
    } else {
        memcpy(&bits, t->quant->scale, sizeof bits);
        ln_put(&p->w, "ln_from_bits_f(0x%xu)", (unsigned)bits);
    }
}

static void put_const(program *p, const int64_t *in) {
    float f;
    uint32_t word;
    uint64_t bits;
    if (p->constants && in[1] == LINNET_F32) {
        ln_put(&p->w, "%sreal%d", p->prefix, (int)in[2]);
    } else if (p->constants && in[1] == LINNET_I32) {
        ln_put(&p->w, "%sinteger%d", p->prefix, (int)in[2]);
    } else if (in[1] == LINNET_F32) {
        f = (float)p->map->floats.v[in[2]];
        memcpy(&word, &f, sizeof word);
        ln_put(&p->w, "ln_from_bits_f(0x%xu)", (unsigned)word);
    } else if (in[1] == LINNET_F64) {
        memcpy(&bits, &p->map->floats.v[in[2]], sizeof bits);
        ln_put(&p->w, "ln_from_bits_d((ln_u64)0x%llxu)", (unsigned long long)bits);
    } else { /* C has no literal for the least integer */
        ln_put(&p->w, "(%s)0x%llxu", register_name((int)in[1]),
               (unsigned long long)p->map->integers.v[in[2]] & (in[1] == LINNET_I32 ? UINT32_MAX : UINT64_MAX));
    }
}

static void put_table(program *p, const int64_t *in) {
    char element[160];
    const int input = (int)in[3];
    snprintf(element, sizeof element, "%sx%d_table[ln_clamp_i(ln_%lld,0,%lld)]", p->prefix, input, (long long)in[2],
             (long long)input_of(p, input)->dims[0] - 1);
    put_loaded(p, input_dtype(p, input), (int)in[1], element);
}

static void put_dequantized(program *p, int input) {
    const ln_tensor *t = input_of(p, input);
    /* The interpreters saturate a u64 to i64 when they load it. */
    const char *most = t->dtype == LINNET_U64 ? "0x7fffffffffffffffu" : NULL;
    ln_put(&p->w, "(float)(ln_i32)((ln_u32)");
    if (most != NULL)
        ln_put(&p->w, "(%sx%d>%s?%s:%sx%d)", p->prefix, input, most, most, p->prefix, input);
    else
        ln_put(&p->w, "%sx%d", p->prefix, input);
    ln_put(&p->w, "-(ln_u32)");
    put_quant(p, t, 'x', input, true);
    ln_put(&p->w, ")*");
    put_quant(p, t, 'x', input, false);
}

/* Writes an instruction whose opcode is a row of map/map_table.h. */
static void put_row(program *p, const int64_t *in) {
    for (const char *row = source_rows; row < source_rows + sizeof source_rows - 1; row += strlen(row) + 1)
        if (row[0] == (char)in[0] && row[1] == (char)in[1]) {
            expand(&p->w, row + 2, in[2], in[3]);
            return;
        }
    p->unknown = true;
}

static void put_cast(program *p, const int64_t *in) {
    char name[32];
    snprintf(name, sizeof name, "ln_%lld", (long long)in[2]);
    put_loaded(p, ln_map_result_type(p->map->program.v + in[2] * LN_MAP_WORDS), (int)in[1], name);
}

static void put_fixed_multiply(program *p, const int64_t *in) {
    const int64_t *integers = p->map->integers.v;
    ln_put(&p->w, "ln_map_fixed_multiply%s(ln_%d", in[0] == LN_MAP_FIXED_MULTIPLY ? "" : "_single", (int)in[2]);
    for (int i = 3; i <= 4; i++)
        if (p->constants)
            ln_put(&p->w, ",%sinteger%d", p->prefix, (int)in[i]);
        else
            ln_put(&p->w, ",%d", (int)integers[in[i]]);
    ln_put_char(&p->w, ')');
}

static void put_value(program *p, const int64_t *in) {
    char name[96];
    switch (in[0]) {
    case LN_MAP_LOAD:
        snprintf(name, sizeof name, "%sx%d", p->prefix, (int)in[2]);
        put_loaded(p, input_dtype(p, (int)in[2]), (int)in[1], name);
        break;
    case LN_MAP_LOAD_DEQUANTIZED: put_dequantized(p, (int)in[2]); break;
    case LN_MAP_CONST: put_const(p, in); break;
    case LN_MAP_IOTA: ln_put(&p->w, "(%s)%si%d", register_name((int)in[1]), p->prefix, (int)in[2]); break;
    case LN_MAP_CAST: put_cast(p, in); break;
    case LN_MAP_SELECT: ln_put(&p->w, "ln_%d!=0?ln_%d:ln_%d", (int)in[2], (int)in[3], (int)in[4]); break;
    case LN_MAP_FIXED_MULTIPLY:
    case LN_MAP_FIXED_MULTIPLY_SINGLE: put_fixed_multiply(p, in); break;
    case LN_MAP_TABLE: put_table(p, in); break;
    default: put_row(p, in); break;
    }
}

static void put_store(program *p, const int64_t *in) {
    const ln_tensor *t = &p->outputs[in[3]];
    int64_t low, high;
    ln_put(&p->w, "%sy%d=", p->prefix, (int)in[3]);
    if (in[0] == LN_MAP_STORE) {
        put_stored(p, ln_map_result_type(p->map->program.v + in[2] * LN_MAP_WORDS), t->dtype, in[2]);
    } else {
        ln_quant_range(t->dtype, t->quant->bits, &low, &high);
        ln_put(&p->w, "(%s)ln_quantize_f(ln_%d,", ln_source_element(t->dtype), (int)in[2]);
        put_quant(p, t, 'y', (int)in[3], false);
        ln_put_char(&p->w, ',');
        put_quant(p, t, 'y', (int)in[3], true);
        ln_put(&p->w, ",%lld,%lld)", (long long)low, (long long)high);
    }
    ln_put(&p->w, ";\n");
}

linnet_status linnet_step_map_source(const linnet_step *step, const linnet_source_options *options, char *text,
                                     size_t size, size_t *length) {
    linnet_source_options own;
    linnet_status status = ln_source_take(options, &own, text, size, length);
    if (status != LINNET_OK) return status;
    const ln_call *call = &step->call;
    const bool node = call->op->family == LN_FAMILY_MAP;
    program p = {.w = {.text = text, .size = size},
                 .step = step,
                 .prefix = own.prefix,
                 .names = own.quantization_names,
                 .constants = own.constant_names};
    p.epilogue = node ? NULL : call->epilogue;
    p.map = node ? call->attributes : p.epilogue != NULL ? p.epilogue->map : NULL;
    p.inputs = call->inputs;
    p.outputs = call->outputs;
    ln_convert_program made = {0};
    const int id = call->op->id;
    if (id == LN_OP_CAST || id == LN_OP_QUANTIZE || id == LN_OP_DEQUANTIZE) {
        const ln_quant *quant = (id == LN_OP_QUANTIZE ? call->outputs : call->inputs)->quant;
        const bool axis = id != LN_OP_CAST && !ln_given(call->inputs, call->n_inputs, 1) && quant != NULL &&
                          quant->scheme == LN_QUANT_AXIS;
        if ((!axis && !ln_convert_can(call)) || (id == LN_OP_CAST && ln_dtype_bits(call->outputs[0].dtype) < 8))
            return LINNET_UNSUPPORTED;
        ln_convert_build(call, &made, axis || p.names);
        p.map = &made.attributes;
        p.constants = false; /* linnet_step_get_map does not give the constants of a conversion */
        p.inputs = made.inputs;
        p.outputs = &made.output;
    }
    if (p.map == NULL) return LINNET_UNKNOWN_NAME;
    ln_contract_nothing(&p.w, own.language);
    ln_put(&p.w, "{\n");
    for (int stores = 0; stores < 2; stores++) {
        for (int64_t k = 0; k < p.map->program.n / LN_MAP_WORDS; k++) {
            const int64_t *in = p.map->program.v + k * LN_MAP_WORDS;
            const bool store = in[0] == LN_MAP_STORE || in[0] == LN_MAP_STORE_QUANTIZED;
            if (store && stores) put_store(&p, in);
            if (store || stores) continue;
            ln_put(&p.w, "%s ln_%lld=", register_name(ln_map_result_type(in)), (long long)k);
            put_value(&p, in);
            ln_put(&p.w, ";\n");
        }
    }
    ln_put(&p.w, "}\n");
    ln_put_end(&p.w, length);
    return p.unknown ? LINNET_UNSUPPORTED : LINNET_OK;
}

#endif
