/* store.c - writes the text with which a kernel stores its result: the conversion of integer sums, the epilogue, and
 * the map. linnet itself provides the text of these three. */
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/layout.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Returns a text that the host writes; NULL on failure. The caller frees the text. */
static char *block_of(const lg_step *s, linnet_status (*write)(const linnet_step *, const linnet_source_options *,
                                                               char *, size_t, size_t *)) {
    linnet_source_options options;
    size_t size = 4096, length = 0; /* most texts are shorter, so the host writes them only once */
    linnet_source_options_init(&options);
    options.language = s->machine->language;
    options.native = options.quantization_names = options.constant_names = true;
    for (;;) {
        char *text = malloc(size);
        if (text == NULL) return NULL;
        const linnet_status status = write(s->step, &options, text, size, &length);
        if (status == LINNET_OK && length < size) return text;
        free(text);
        if (status == LINNET_OK)
            size = length + 1;
        else if (options.quantization_names)
            /* An older library does not know these options. */
            options.quantization_names = options.constant_names = false;
        else
            return NULL;
    }
}

/* Writes the offset of an operand that is broadcast to the shape. Usually the axes of the operand, such as the
 * channels, are adjacent in the shape; the offset is then at / inner % count. Otherwise the offset is a sum over the
 * coordinates i0, i1, ... */
static void put_offset(lg_launch *launch, lg_text *text, const linnet_device_tensor *x,
                       const linnet_device_tensor *shape) {
    const int ahead = shape->rank - x->rank;
    int64_t inner = 1, dense = 1; /* inner: elements of `shape` after the operand's axes; dense: elements of x in the
                                     axes processed so far */
    bool block = true, ended = false;
    for (int k = shape->rank - 1; k >= 0; --k) { /* from the innermost axis of `shape` */
        const int d = lg_order(shape, k), own = d - ahead;
        const bool there = own >= 0 && x->shape[own] != 1;
        if (there) block = block && !ended && x->shape[own] == shape->shape[d] && x->strides[own] == dense;
        if (there) dense *= x->shape[own];
        if (!there && shape->shape[d] != 1 && dense == 1) inner *= shape->shape[d];
        if (!there && shape->shape[d] != 1 && dense > 1) ended = true;
    }
    if (lg_count(x) == 1) {
        lg_put(text, "0");
    } else if (block && lg_count(x) == lg_count(shape)) {
        lg_put(text, "at");
    } else if (block) {
        lg_put(text, "at/lg_n%d", lg_number(launch, inner));
        lg_put(text, "%%lg_n%d", lg_number(launch, lg_count(x)));
    } else {
        lg_put(text, "0");
        for (int d = 0; d < x->rank; ++d)
            if (x->shape[d] != 1) lg_put(text, "+i%d*lg_n%d", ahead + d, lg_number(launch, x->strides[d]));
    }
}

static void put_coordinates(lg_launch *launch, lg_text *text, const linnet_device_tensor *shape, const char *uses) {
    char name[32];
    int64_t inner = 1;
    for (int k = shape->rank - 1; k >= 0; --k) {
        const int d = lg_order(shape, k);
        snprintf(name, sizeof name, "i%d", d);
        if (lg_has_word(uses, name)) {
            lg_put(text, "const int i%d=at", d);
            if (k + 1 < shape->rank) lg_put(text, "/lg_n%d", lg_number(launch, inner));
            if (k > 0) lg_put(text, "%%lg_n%d", lg_number(launch, shape->shape[d]));
            lg_put(text, ";\n");
        }
        inner *= shape->shape[d];
    }
}

/* Passes the quantization of an operand that the block uses, as numbers or in packed memory, and defines its names. */
static void put_quantization(lg_plan *plan, lg_launch *launch, lg_text *text, const char *block, char side, int n,
                             const linnet_device_tensor *t) {
    char name[32];
    snprintf(name, sizeof name, "%c%d_scale", side, n);
    if (lg_has_word(block, name) && t->scales != NULL && t->quant_count == 1)
        lg_put(text, "const float %s=lg_r%d;\n", name, lg_real_number(launch, t->scales[0]));
    else if (lg_has_word(block, name) && t->scales != NULL)
        lg_put(text, "LG_GLOBAL const float *const %s=(LG_GLOBAL const float *)(lg_packed+lg_n%d);\n", name,
               lg_number(launch, (int64_t)lg_pack(plan, t->scales, (size_t)t->quant_count * sizeof *t->scales)));
    snprintf(name, sizeof name, "%c%d_zero", side, n);
    if (!lg_has_word(block, name)) return;
    if (t->quant_count == 1) {
        lg_put(text, "const int %s=lg_n%d;\n", name, lg_number(launch, t->zeros != NULL ? t->zeros[0] : 0));
        return;
    }
    int32_t *zeros = calloc(t->quant_count, sizeof *zeros);
    if (zeros == NULL) {
        plan->failed = true;
        return;
    }
    for (int64_t i = 0; i < t->quant_count && t->zeros != NULL; ++i) zeros[i] = t->zeros[i];
    lg_put(text, "LG_GLOBAL const ln_i32 *const %s=(LG_GLOBAL const ln_i32 *)(lg_packed+lg_n%d);\n", name,
           lg_number(launch, (int64_t)lg_pack(plan, zeros, (size_t)t->quant_count * sizeof *zeros)));
    free(zeros);
}

/* Appends the names of the parameters: the text after the last '*' or blank of each. */
static void put_names(lg_text *text, const char *parameters) {
    for (const char *at = parameters; at != NULL && *at != 0;) {
        const char *end = strchr(at + 1, ',');
        if (end == NULL) end = at + strlen(at);
        const char *from = end;
        while (from > at && from[-1] != '*' && from[-1] != ' ') --from;
        lg_put(text, ",%.*s", (int)(end - from), from);
        at = end;
    }
}

/* Defines the constants that the text uses. They are arguments, so layers that differ only in constants share a
 * program. A float whose mantissa is short stays a number in the text, because it belongs to a formula (such as 0.5 or
 * 6) and is not a learnt weight. */
static void put_constants(lg_launch *launch, const lg_step *s, const char *block, lg_text *body) {
    enum { LATER = 2 * LINNET_MAX_RANK + 4 }; /* room that must stay for arguments that are added later */
    char name[32];
    for (int i = 0; i < s->map.float_count; ++i) {
        const float value = (float)s->map.floats[i];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        snprintf(name, sizeof name, "real%d", i);
        if (!lg_has_word(block, name)) continue;
        if ((bits & 0xffff) == 0 || launch->n_arguments + LATER >= LG_MOST_ARGUMENTS)
            lg_put(body, "const float %s=ln_from_bits_f(0x%xu);\n", name, (unsigned)bits);
        else
            lg_put(body, "const float %s=lg_r%d;\n", name, lg_real_number(launch, value));
    }
    for (int i = 0; i < s->map.integer_count; ++i) {
        snprintf(name, sizeof name, "integer%d", i);
        if (!lg_has_word(block, name)) continue;
        if (launch->n_arguments + LATER >= LG_MOST_ARGUMENTS)
            lg_put(body, "const int %s=(int)0x%xu;\n", name, (unsigned)s->map.integers[i]);
        else
            lg_put(body, "const int %s=lg_n%d;\n", name, lg_number(launch, s->map.integers[i]));
    }
}

/* Declares the inputs and outputs of a map or an epilogue as parameters, and reads and stores their elements in `body`.
 * In a step with an epilogue, the input map.result is not an operand but the value that the kernel has computed. */
static void put_operands(lg_plan *plan, lg_launch *launch, const lg_step *s, const char *block, lg_text *body) {
    char name[32];
    const int skipped = s->map.result;
    for (int n = 0, extra = s->has_epilogue ? s->n_inputs : 0; n < s->map.input_count; ++n) {
        const linnet_device_tensor *x = n == skipped ? &s->result : &s->inputs[extra];
        put_quantization(plan, launch, body, block, 'x', n, x);
        if (n == skipped) {
            extra += !s->has_epilogue;
            continue;
        }
        lg_put(&launch->source, "#define LG_E%d_T %s\n", n, lg_type_of(x->dtype));
        lg_put(&launch->extras, ",LG_GLOBAL const LG_E%d_T *LG_RESTRICT lg_e%d", n, n);
        lg_pass(launch, LG_INPUT, extra++);
        snprintf(name, sizeof name, "x%d_table", n);
        if (lg_has_word(block, name)) {
            lg_put(body, "LG_GLOBAL const LG_E%d_T *const x%d_table=lg_e%d;\n", n, n, n);
        } else {
            lg_put(body, "const LG_E%d_T x%d=lg_e%d[", n, n, n);
            if (s->is_conversion && n > 0 && lg_count(x) > 1)
                lg_put(body, "i%d", lg_axis(lg_integer(s, "axis", 1), s->outputs[0].rank));
            else
                put_offset(launch, body, x, &s->outputs[0]);
            lg_put(body, "];\n");
        }
    }
    for (int n = 0; n < s->n_outputs; ++n) {
        lg_put(&launch->source, "#define LG_Y%d_T %s\n", n, lg_type_of(s->outputs[n].dtype));
        if (n > 0) {
            lg_put(&launch->extras, ",LG_GLOBAL LG_Y%d_T *LG_RESTRICT lg_y%d", n, n);
            lg_pass(launch, LG_OUTPUT, n);
        }
        lg_put(body, "LG_Y%d_T y%d;\n", n, n);
        put_quantization(plan, launch, body, block, 'y', n, &s->outputs[n]);
    }
}

/* Defines LG_EXTRAS, which includes packed memory if the step has any. */
static void put_extras(lg_plan *plan, lg_launch *launch) {
    if (plan->packed.length > 0) {
        lg_put(&launch->extras, ",LG_GLOBAL const char *LG_RESTRICT lg_packed");
        lg_pass(launch, LG_PACKED, 0);
    }
    lg_put(&launch->source, "#define LG_EXTRAS %s\n", launch->extras.at != NULL ? launch->extras.at : "");
}

/* Writes the function lg_finish, which converts a sum, computes the map or the epilogue, and stores element `at`. */
static void put_finish(lg_plan *plan, lg_launch *launch, const lg_step *s, bool converts) {
    const linnet_host *host = s->machine->host;
    lg_text coordinates = {0}, body = {0}, *out = &launch->source;
    char *convert = converts ? block_of(s, host->step_result_source) : NULL;
    char *block = s->has_map ? block_of(s, host->step_map_source) : NULL;
    const char *stored = lg_type_of(s->result.dtype);
    if ((converts && convert == NULL) || (s->has_map && block == NULL)) plan->failed = true;
    if (convert != NULL) { /* the tables are packed first, because both texts may use packed memory */
        lg_put(&body, "LG_TABLES\nconst ACC sum=lg_value;\n%s result;\n", stored);
        lg_put_text(&body, convert);
    }
    if (block != NULL) {
        const char *type = lg_is_float(s->result.dtype) && !converts ? "float" : stored;
        if (s->has_epilogue)
            lg_put(&body, "const %s x%d=%s;\n", type, (int)s->map.result, converts ? "result" : "lg_value");
        put_operands(plan, launch, s, block, &body);
        put_constants(launch, s, block, &body);
        lg_put_text(&body, block);
        for (int n = 0; n < s->n_outputs; ++n) lg_put(&body, "lg_y%d[at]=y%d;\n", n, n);
    } else {
        lg_put(out, "#define LG_Y0_T %s\n", lg_type_of(s->outputs[0].dtype));
        lg_put(&body, "lg_y0[at]=result;\n");
    }
    if (body.at != NULL) put_coordinates(launch, &coordinates, &s->outputs[0], body.at);
    put_extras(plan, launch);
    lg_put(out, "#define LG_EXTRA_NAMES ");
    put_names(out, launch->extras.at);
    lg_put(
        out,
        "\nLG_FUNCTION void lg_finish(%s lg_value,LG_GLOBAL LG_Y0_T *LG_RESTRICT lg_y0,const int at,const int channel "
        "LG_EXTRAS){\n",
        converts                       ? "ACC"
        : !s->has_epilogue             ? "int"
        : lg_is_float(s->result.dtype) ? "float"
                                       : stored);
    if (coordinates.at != NULL) lg_put_text(out, coordinates.at);
    if (body.at != NULL) lg_put_text(out, body.at);
    lg_put(out, "}\n");
    plan->failed |= coordinates.failed || body.failed || launch->extras.failed;
    lg_free(&coordinates), lg_free(&body);
    free(convert), free(block);
}

bool lg_can_store(const lg_step *s) {
    for (int i = 0; i < s->n_outputs; ++i) {
        if (i > 0 && s->outputs[i].dtype == LINNET_NONE) continue;
        if (lg_type_of(s->outputs[i].dtype) == NULL || lg_count(&s->outputs[i]) > INT32_MAX) return false;
        if (s->outputs[i].dtype == LINNET_F64 && !s->machine->f64) return false;
    }
    for (int i = s->has_map ? (s->has_epilogue ? s->n_inputs : 0) : s->n_inputs + s->n_extra;
         i < s->n_inputs + s->n_extra; ++i) {
        const linnet_device_tensor *x = &s->inputs[i];
        if (lg_type_of(x->dtype) == NULL || (x->dtype == LINNET_F64 && !s->machine->f64)) return false;
    }
    return lg_type_of(s->result.dtype) != NULL;
}

void lg_put_store(lg_plan *plan, lg_launch *launch, const lg_step *s) {
    const bool converts = lg_converts_sums(s);
    if (s->has_map || converts) {
        put_finish(plan, launch, s, converts);
        lg_put(&launch->source, "#define LG_STORE(value,at,channel) lg_finish(value,y,at,channel LG_EXTRA_NAMES)\n");
    } else {
        put_extras(plan, launch);
        lg_put(&launch->source, "#define LG_STORE(value,at,channel) LG_PUT_%s(y,at,value)\n",
               lg_word_of(s->outputs[0].dtype));
    }
    plan->failed |= launch->source.failed;
}
