/* test_model.c - opens files: a valid one, and one for each fault that the verifier looks for.
 * Opening a faulty file must return the error code of the fault and a record that names the fault, and must leak no
 * memory. */
#define _POSIX_C_SOURCE 200809L

#include "check.h"
#include "model/model.h"
#include "sample_model.h"

#include "model/graph.h"
#include "linnet_ext.h"

#include <unistd.h>

static sample_model base, changed;
static size_t live;

static void *count_alloc(void *context, size_t size, size_t alignment) {
    (void)context;
    live += size;
    return aligned_alloc(alignment, size);
}

static void count_free(void *context, void *pointer, size_t size) {
    (void)context;
    live -= size;
    free(pointer);
}

static const linnet_allocator counting = {NULL, count_alloc, count_free};

static linnet_status open_size(const void *data, size_t size, linnet_model **model, linnet_error *error) {
    linnet_model_config config;
    linnet_model_config_init(&config);
    config.allocator = &counting;
    return linnet_model_open_memory(data, size, LINNET_BORROW, &config, model, error);
}

static void good(void) {
    linnet_model *model;
    linnet_error error;
    linnet_tensor_info info = {.struct_size = sizeof info};
    const float *weight;
    CHECK_INT(open_size(base.w.bytes, base.size, &model, &error), LINNET_OK);
    if (!model) {
        char text[1024];
        linnet_error_format(&error, text, sizeof text);
        printf("%s\n", text);
        return;
    }
    CHECK_INT(linnet_model_signature_count(model), 1);
    CHECK_TEXT(linnet_model_signature_name(model, 0), "infer");
    CHECK(linnet_model_signature_name(model, 1) == NULL);
    CHECK(linnet_model_signature_name(model, -1) == NULL);
    CHECK_INT(linnet_model_find_signature(model, "infer"), 0);
    CHECK_INT(linnet_model_find_signature(model, "train"), -1);
    CHECK_INT(linnet_model_input_count(model, 0), 1);
    CHECK_INT(linnet_model_output_count(model, 0), 1);
    CHECK_INT(linnet_model_input_count(model, 7), 0);
    CHECK_INT(linnet_model_get_input(model, 0, 0, &info), LINNET_OK);
    CHECK_TEXT(info.name, "x");
    CHECK_INT(info.dtype, LINNET_F32);
    CHECK_INT(info.rank, 2);
    CHECK_INT(info.shape[1], 3);
    CHECK_INT(info.bytes, 24);
    CHECK_INT(linnet_model_get_input(model, 0, 1, &info), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_model_get_output(model, 0, 0, &info), LINNET_OK);
    CHECK_TEXT(info.name, "y");
    CHECK_INT(linnet_model_variable_count(model), 1);
    CHECK_INT(linnet_model_get_variable(model, 0, &info), LINNET_OK);
    CHECK_TEXT(info.name, "state");
    CHECK_INT(linnet_model_get_variable(model, 1, &info), LINNET_INVALID_ARGUMENT);
    CHECK_TEXT(linnet_model_metadata(model, "producer"), "sample_model.h");
    CHECK(linnet_model_metadata(model, "license") == NULL);
    CHECK_INT(linnet_model_mapped_bytes(model), 0);
    weight = model->functions[0].values[1].data;
    CHECK((const unsigned char *)weight > base.w.bytes && weight[5] == 6.0f);
    CHECK_TEXT(model->functions[0].nodes[0].source, "Add:add");
    CHECK_INT(((const ln_map_attributes *)model->functions[0].nodes[0].attributes)->program.n, 20);
    CHECK_INT((uintptr_t)((const ln_map_attributes *)model->functions[0].nodes[0].attributes)->program.v % 8, 0);
    linnet_model_free(ln_model_retain(model));
    CHECK(live > 0);
    linnet_model_free(model);
    CHECK_INT(live, 0);
    linnet_model_free(NULL);
}

static void as_file(void) {
    char path[] = "/tmp/linnet-test-XXXXXX";
    int file = mkstemp(path);
    linnet_model *model;
    linnet_error error;
    CHECK(file >= 0 && write(file, base.w.bytes, base.size) == (ssize_t)base.size);
    CHECK_INT(linnet_model_open(path, NULL, &model, &error), LINNET_OK);
    CHECK_INT(linnet_model_mapped_bytes(model), base.size);
    linnet_model_free(model);
    CHECK(ftruncate(file, 0) == 0);
    CHECK_INT(linnet_model_open(path, NULL, &model, &error), LINNET_BAD_MAGIC);
    CHECK(model == NULL);
    CHECK_TEXT(error.tensor, path);
    close(file);
    unlink(path);
    CHECK_INT(linnet_model_open(path, NULL, &model, &error), LINNET_NOT_FOUND);
    CHECK_INT(linnet_model_open("/", NULL, &model, &error), LINNET_READ_FAILED);
    CHECK_INT(linnet_model_open(NULL, NULL, &model, NULL), LINNET_INVALID_ARGUMENT);
}

static void arguments(void) {
    linnet_model *model = (linnet_model *)1;
    linnet_model_config config;
    linnet_error error;
    linnet_allocator half = {NULL, count_alloc, NULL};
    static _Alignas(64) unsigned char moved[sizeof base.w.bytes + 64];
    linnet_model_config_init(&config);
    CHECK_INT(linnet_model_open_memory(NULL, 10, LINNET_BORROW, &config, &model, &error), LINNET_INVALID_ARGUMENT);
    CHECK(model == NULL);
    CHECK_INT(linnet_model_open_memory(base.w.bytes, base.size, LINNET_BORROW, &config, NULL, &error),
              LINNET_INVALID_ARGUMENT);
    config.struct_size = 4;
    CHECK_INT(linnet_model_open_memory(base.w.bytes, base.size, LINNET_BORROW, &config, &model, &error),
              LINNET_INVALID_ARGUMENT);
    CHECK(strstr(error.hint, "linnet_model_config_init") != NULL);
    linnet_model_config_init(&config);
    config.allocator = &half;
    CHECK_INT(linnet_model_open_memory(base.w.bytes, base.size, LINNET_BORROW, &config, &model, &error),
              LINNET_INVALID_ARGUMENT);
    memcpy(moved + 1, base.w.bytes, base.size); /* misaligned bytes are copied, so they may change at once */
    CHECK_INT(open_size(moved + 1, base.size, &model, &error), LINNET_OK);
    memset(moved, 0, sizeof moved);
    if (model) CHECK(((const float *)model->functions[0].values[1].data)[5] == 6.0f);
    linnet_model_free(model);
    CHECK_INT(live, 0);
}

/* Sets field `at` of the valid file to `value` and updates the checksum. The file must be refused with this code and
 * words. */
static void wrong(size_t at, uint64_t value, int width, linnet_status code, const char *words) {
    linnet_model *model;
    linnet_error error;
    char text[1024];
    memcpy(&changed, &base, sizeof base);
    writer_put(&changed.w, at, value, width);
    sample_seal(&changed);
    memset(&error, 0, sizeof error);
    CHECK_INT(open_size(changed.w.bytes, changed.size, &model, &error), code);
    CHECK(model == NULL);
    linnet_error_format(&error, text, sizeof text);
    if (!strstr(text, words)) CHECK_TEXT(text, words);
    CHECK(error.code == (int)code && !strchr(text, '\n'));
    linnet_model_free(model);
    CHECK_INT(live, 0);
}

static void headers(void) {
    static const struct {
        int at, width;
        uint64_t value;
        linnet_status code;
    } cases[] = {
        {0, 1, 'M', LINNET_BAD_MAGIC}, {6, 1, '\n', LINNET_BAD_MAGIC},   {12, 4, 3, LINNET_NEWER_FORMAT},
        {8, 4, 0, LINNET_CORRUPT},     {12, 4, 2, LINNET_CORRUPT},       {12, 4, 0, LINNET_CORRUPT},
        {16, 8, 128, LINNET_CORRUPT},  {24, 8, 1 << 20, LINNET_CORRUPT}, {24, 8, UINT64_MAX, LINNET_CORRUPT},
        {24, 8, 0, LINNET_CORRUPT},    {32, 4, 0, LINNET_CORRUPT},       {40, 8, 1 << 20, LINNET_TRUNCATED},
        {40, 8, 64, LINNET_CORRUPT},
    };
    linnet_model *model;
    linnet_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(&changed, &base, sizeof base);
        writer_put(&changed.w, (size_t)cases[i].at, cases[i].value, cases[i].width);
        CHECK_INT(open_size(changed.w.bytes, changed.size, &model, &error), cases[i].code);
        CHECK(model == NULL && (error.expected[0] || error.got[0] || error.hint[0]));
    }
    for (int bit = 0; bit < 32; bit++) { /* every checksum with one wrong bit */
        memcpy(&changed, &base, sizeof base);
        changed.w.bytes[32 + bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK_INT(open_size(changed.w.bytes, changed.size, &model, &error), LINNET_CORRUPT);
        CHECK(strstr(error.what, "checksum of the structure") != NULL);
    }
    for (size_t size = 0; size < base.size; size++) {
        linnet_status status = open_size(base.w.bytes, size, &model, &error);
        CHECK_INT(status, size < 8 ? LINNET_BAD_MAGIC : LINNET_TRUNCATED);
    }
    CHECK_INT(live, 0);
}

static void structures(void) {
    const sample_model *b = &base;
    size_t p = b->program + 4;
    wrong(68, 'X', 1, LINNET_CORRUPT, "identifier");
    wrong(64, 1 << 30, 4, LINNET_CORRUPT, "offset");
    /* tensors */
    wrong(b->x.slots[1], 0, 1, LINNET_CORRUPT, "'x': a tensor has an unknown dtype");
    wrong(b->x.slots[1], LN_LAST_DTYPE + 1, 1, LINNET_CORRUPT, "dtype");
    wrong(b->x.slots[2], 9, 4, LINNET_CORRUPT, "8 dimensions");
    wrong(b->x.slots[2], (uint64_t)-2, 4, LINNET_CORRUPT, "dimensions");
    wrong(b->x.slots[2], 1, 4, LINNET_CORRUPT, "length of a shape");
    wrong(b->x_shape + 4, (uint64_t)-2, 8, LINNET_CORRUPT, "dimension is less than -1");
    wrong(b->x_shape + 4, (uint64_t)1 << 61, 8, LINNET_TOO_LARGE, "overflows");
    wrong(b->x_shape + 4, INT64_MAX, 8, LINNET_TOO_LARGE, "overflows");
    wrong(b->weight_shape + 4, 3, 8, LINNET_CORRUPT, "sizes of a segment and its tensor");
    wrong(b->weight_shape + 4, (uint64_t)-1, 8, LINNET_CORRUPT, "unknown dimension");
    wrong(b->weight.slots[6], 2, 4, LINNET_CORRUPT, "segment number");
    wrong(b->weight.slots[6], (uint64_t)-5, 4, LINNET_CORRUPT, "does not exist");
    wrong(b->weight.slots[6], (uint64_t)-1, 4, LINNET_CORRUPT, "before any node computes it");
    wrong(b->state_read.slots[8], 1, 4, LINNET_CORRUPT, "does not exist");
    wrong(b->y.slots[8], 0, 4, LINNET_CORRUPT, "differ in shape");
    /* segments */
    wrong(b->segments[0].slots[0], 65, 8, LINNET_CORRUPT, "64 bytes");
    wrong(b->segments[0].slots[0], 0, 8, LINNET_CORRUPT, "outside the file");
    wrong(b->segments[0].slots[0], (uint64_t)1 << 40, 8, LINNET_CORRUPT, "outside the file");
    wrong(b->segments[0].slots[0], UINT64_MAX - 63, 8, LINNET_CORRUPT, "2^63");
    wrong(b->segments[0].slots[1], INT64_MAX, 8, LINNET_CORRUPT, "outside the file");
    wrong(b->segments[0].slots[1], base.size, 8, LINNET_CORRUPT, "outside the file"); /* ends outside the file */
    wrong(b->segments[0].slots[1], 20, 8, LINNET_CORRUPT, "sizes of a segment and its tensor");
    /* nodes */
    wrong(b->node.slots[0], 0, 2, LINNET_UNSUPPORTED, "op with number 0");
    wrong(b->node.slots[0], LN_OP_LIMIT, 2, LINNET_UNSUPPORTED, "op with number");
    wrong(b->node.slots[0], LN_OP_SOFTMAX, 2, LINNET_CORRUPT, "number of inputs");
    wrong(b->node.slots[0], LN_OP_MATMUL, 2, LINNET_CORRUPT, "attributes of another op");
    wrong(b->node.slots[0], LN_OP_ASSIGN, 2, LINNET_CORRUPT, "attributes of another op");
    wrong(b->node.slots[3], LN_OP_COPY, 1, LINNET_CORRUPT, "attributes of another op");
    wrong(b->node_inputs + 4, 4, 4, LINNET_CORRUPT, "does not exist");
    wrong(b->node_inputs + 4, (uint64_t)-1, 4, LINNET_CORRUPT, "does not exist");
    wrong(b->node_inputs + 4, 2, 4, LINNET_CORRUPT, "node 0 'add': 'y': a node reads a tensor before");
    wrong(b->node_outputs + 4, 0, 4, LINNET_CORRUPT, "node writes an input, a constant, a variable or");
    wrong(b->node_outputs + 4, 1, 4, LINNET_CORRUPT, "node writes an input, a constant, a variable or");
    wrong(b->node_outputs + 4, 3, 4, LINNET_CORRUPT, "node writes an input, a constant, a variable or");
    wrong(b->node_outputs + 4, 99, 4, LINNET_CORRUPT, "does not exist");
    wrong(b->function_inputs + 4, 1, 4, LINNET_CORRUPT, "constant or variable");
    wrong(b->function_inputs + 4, 2, 4, LINNET_CORRUPT, "before any node computes it");
    wrong(b->function_inputs + 4, 44, 4, LINNET_CORRUPT, "does not exist");
    wrong(b->function_outputs + 4, 44, 4, LINNET_CORRUPT, "does not exist");
    /* signatures, variables */
    wrong(b->signature.slots[1], 1, 4, LINNET_CORRUPT, "function that does not exist");
    wrong(b->signature.slots[1], (uint64_t)-1, 4, LINNET_CORRUPT, "function that does not exist");
    wrong(b->input_names, 0, 4, LINNET_CORRUPT, "different numbers of inputs");
    wrong(b->variable.slots[1], LINNET_I32, 1, LINNET_CORRUPT, "differ in shape");
    wrong(b->variable.slots[1], LINNET_F64, 1, LINNET_CORRUPT, "sizes of a segment and its tensor");
    wrong(b->variable.slots[4], 0, 4, LINNET_CORRUPT, "sizes of a segment and its tensor");
    wrong(b->variable.slots[4], 5, 4, LINNET_CORRUPT, "segment number");
    /* quantization of floats, then of an unknown scheme */
    wrong(b->quant.slots[0], 1, 1, LINNET_CORRUPT, "not have an integer dtype");
    wrong(b->quant.slots[0], 3, 1, LINNET_CORRUPT, "not have an integer dtype");
    wrong(b->quant.slots[0], 4, 1, LINNET_CORRUPT, "scheme");
    /* the map program */
    wrong(b->program, 19, 4, LINNET_BAD_ATTRIBUTE, "length");
    wrong(b->program, 15, 4, LINNET_BAD_ATTRIBUTE, "never stored");
    wrong(b->program, 0, 4, LINNET_BAD_ATTRIBUTE, "length");
    wrong(p, 0, 8, LINNET_BAD_ATTRIBUTE, "unknown opcode");
    wrong(p, 15, 8, LINNET_BAD_ATTRIBUTE, "unknown opcode"); /* a number between those of two opcodes */
    wrong(p, LN_MAP_LIMIT, 8, LINNET_BAD_ATTRIBUTE, "unknown opcode");
    wrong(p, INT64_MAX, 8, LINNET_BAD_ATTRIBUTE, "unknown opcode");
    wrong(p, (uint64_t)-1, 8, LINNET_BAD_ATTRIBUTE, "unknown opcode");
    wrong(p + 8, LINNET_F16, 8, LINNET_BAD_ATTRIBUTE, "dtype of a register must be");
    wrong(p + 8, LINNET_F64, 8, LINNET_BAD_ATTRIBUTE, "the wrong dtype");
    wrong(p + 16, 2, 8, LINNET_BAD_ATTRIBUTE, "input that the node does not have");
    wrong(p + 16, (uint64_t)-1, 8, LINNET_BAD_ATTRIBUTE, "input that the node does not have");
    wrong(p, LN_MAP_LOAD_DEQUANTIZED, 8, LINNET_BAD_ATTRIBUTE, "load_dequantized needs");
    wrong(p, LN_MAP_CONST, 8, LINNET_BAD_ATTRIBUTE, "index of a float immediate");
    wrong(p + 80, LN_MAP_AND, 8, LINNET_BAD_ATTRIBUTE, "not defined for this dtype");
    wrong(p + 80, LN_MAP_SELECT, 8, LINNET_BAD_ATTRIBUTE, "the wrong dtype");
    wrong(p + 80 + 16, 2, 8, LINNET_BAD_ATTRIBUTE, "has no value yet");
    wrong(p + 80 + 16, (uint64_t)-1, 8, LINNET_BAD_ATTRIBUTE, "has no value yet");
    wrong(p + 80, LN_MAP_LT, 8, LINNET_BAD_ATTRIBUTE, "dtype of a store differs");
    wrong(p + 80, LN_MAP_TABLE, 8, LINNET_BAD_ATTRIBUTE, "the wrong dtype");
    wrong(p + 120 + 24, 1, 8, LINNET_BAD_ATTRIBUTE, "output that the node does not have");
    wrong(p + 120, LN_MAP_STORE_QUANTIZED, 8, LINNET_BAD_ATTRIBUTE, "store_quantized needs");
    wrong(p + 120, LN_MAP_IOTA, 8, LINNET_BAD_ATTRIBUTE, "iota");
    wrong(p + 40, LN_MAP_STORE, 8, LINNET_BAD_ATTRIBUTE, "has no value yet");
}

/* Quantization needs an integer tensor. Only x becomes i8, which a map may load. */
static void quantization(void) {
    sample_model keep;
    linnet_model *model;
    linnet_error error;
    linnet_tensor_info info = {.struct_size = sizeof info};
    memcpy(&keep, &base, sizeof base);
    writer_put(&base.w, base.x.slots[1], LINNET_I8, 1);
    writer_put(&base.w, base.quant.slots[0], 1, 1);
    writer_put(&base.w, base.y.slots[5], 0, 4); /* a wrong offset, which must be detected as one */
    wrong(base.y.slots[5], 0, 4, LINNET_CORRUPT, "offset");
    memcpy(&base, &keep, sizeof base);
    /* y and state still use the shared table, so this change of the vtable hides the quantization of every float
     * tensor */
    writer_put(&base.w, base.x.slots[1], LINNET_I8, 1);
    writer_put(&base.w, base.quant.slots[0], 1, 1);
    for (int i = 0; i < 2; i++) {
        const written *t = i ? &base.state_read : &base.y;
        size_t vtable = t->at - (base.w.bytes[t->at] | (size_t)base.w.bytes[t->at + 1] << 8);
        writer_put(&base.w, vtable + 4 + 2 * 5, 0, 2);
    }
    sample_seal(&base);
    CHECK_INT(open_size(base.w.bytes, base.size, &model, &error), LINNET_OK);
    if (model) {
        CHECK_INT(linnet_model_get_input(model, 0, 0, &info), LINNET_OK);
        CHECK(info.scale == 0.5f && info.zero == 0);
    }
    linnet_model_free(model);
    wrong(base.quant_scale + 4, 0, 4, LINNET_CORRUPT, "positive");
    wrong(base.quant_scale + 4, 0x7f800000, 4, LINNET_CORRUPT, "positive");
    wrong(base.quant_scale + 4, 0x7fc00000, 4, LINNET_CORRUPT, "positive");
    wrong(base.quant_scale + 4, 0xbf000000, 4, LINNET_CORRUPT, "positive");
    wrong(base.quant_scale, 0, 4, LINNET_CORRUPT, "number of scales");
    wrong(base.quant.slots[1], 9, 1, LINNET_CORRUPT, "more bits");
    memcpy(&changed, &base, sizeof base);
    writer_put(&base.w, base.quant.slots[0], 2, 1);
    wrong(base.quant.slots[2], 2, 4, LINNET_CORRUPT, "axis");
    wrong(base.quant.slots[2], (uint64_t)-1, 4, LINNET_CORRUPT, "axis");
    memcpy(&base, &keep, sizeof base);
}

/* Changes every byte of the structure in several ways and updates the checksum. No change may cause a crash or a
 * leak. */
static void every_byte(void) {
    int refused = 0, taken = 0;
    for (size_t at = 64; at < base.structure_end; at++)
        for (int way = 0; way < 12; way++) {
            static const unsigned char values[] = {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff};
            linnet_model *model;
            unsigned char old = base.w.bytes[at];
            memcpy(&changed, &base, sizeof base);
            changed.w.bytes[at] = way < 7 ? values[way] : (unsigned char)(old ^ 1u << (way - 7));
            sample_seal(&changed);
            if (open_size(changed.w.bytes, changed.size, &model, NULL))
                refused++;
            else
                taken++;
            linnet_model_free(model);
        }
    CHECK(refused > 2000 && taken > 500);
    CHECK_INT(live, 0);
}

int main(void) {
    sample_make(&base);
    good();
    as_file();
    arguments();
    headers();
    structures();
    quantization();
    every_byte();
    return check_end("test_model");
}
