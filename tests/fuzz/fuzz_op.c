/* fuzz_op.c - passes random nodes of every op through its shape rule and reference kernel: any attributes, dtypes and
 * shapes. usage: fuzz_op COUNT SEED. Build it with sanitizers. Buffers have exactly the size that the rule returns. */
#define _POSIX_C_SOURCE 200809L

#include "../c/writer.h"

#include "generated/op_table.h"
#include "linnet_ext.h"

#include <stdio.h>
#include <unistd.h>

enum { MOST_OPERANDS = 10, CASE_SECONDS = 60, MOST_ELEMENTS = 20000 };

typedef struct fuzz {
    uint64_t state;
    writer w;
    linnet_operand inputs[MOST_OPERANDS], outputs[MOST_OPERANDS];
    float scales[2 * MOST_OPERANDS][16];
    int32_t zeros[2 * MOST_OPERANDS][16];
    long inferred, computed, codes[600];
} fuzz;

static uint64_t next(fuzz *f) {
    uint64_t z = (f->state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static int below(fuzz *f, int n) { return (int)(next(f) % (uint64_t)n); }

static int64_t number(fuzz *f) {
    static const int64_t telling[] = {INT64_MAX,        INT64_MIN,           INT32_MAX, INT32_MIN,
                                      (int64_t)1 << 40, -((int64_t)1 << 40), 1000000};
    return below(f, 40) ? below(f, 8) - 2 : telling[below(f, 7)];
}

static size_t list(fuzz *f, bool floats) {
    int64_t values[12];
    int n = below(f, 3) ? below(f, 6) : below(f, 13);
    for (int i = 0; i < n; i++) {
        double real = (double)number(f) / 2;
        values[i] = number(f);
        if (floats) memcpy(&values[i], &real, 8);
    }
    return writer_vector(&f->w, values, (size_t)n, 8, 8);
}

/* Makes a map program that is valid more often than chance would make it. */
static size_t program(fuzz *f, int inputs) {
    static const int64_t types[] = {LINNET_F32, LINNET_F32, LINNET_F32, LINNET_F64, LINNET_I32, LINNET_I64};
    int64_t in[5 * 12], type = types[below(f, 6)];
    int n = 0, loads = 1 + below(f, 3);
    for (int i = 0; i < loads; i++, n++) {
        int64_t load[5] = {LN_MAP_LOAD, type, below(f, inputs + 1), 0, 0};
        memcpy(in + 5 * n, load, sizeof load);
    }
    for (int i = below(f, 6); i > 0; i--, n++) {
        int64_t op[5] = {1 + below(f, LN_MAP_LIMIT), below(f, 8) ? type : types[below(f, 6)], below(f, n), below(f, n),
                         below(f, n)};
        memcpy(in + 5 * n, op, sizeof op);
    }
    int64_t store[5] = {LN_MAP_STORE, below(f, 6) ? type : LINNET_I32, n - 1, 0, 0};
    memcpy(in + 5 * n, store, sizeof store);
    return writer_vector(&f->w, in, 5 * (size_t)(n + 1), 8, 8);
}

/* Writes the node's flatbuffer: op, and a table of all its attributes, each sometimes absent. */
static void make_node(fuzz *f, const ln_op *op, int inputs) {
    char widths[WRITER_SLOTS + 1] = "";
    written node, table;
    writer_begin(&f->w);
    for (int i = 0; i < op->n_attributes; i++) {
        static const char width_of[] = {'8', '1', '8', '1', '1', '4', '4', '4', '4'};
        widths[i] = below(f, 3) || op->id == LN_OP_MAP ? width_of[ln_op_attribute(op, i)->type] : '0';
    }
    widths[op->n_attributes] = 0;
    node = writer_table(&f->w, "20014");
    writer_point(&f->w, 64, node.at);
    writer_put(&f->w, node.slots[0], op->id, 2);
    writer_put(&f->w, node.slots[3], op->id, 1);
    table = writer_table(&f->w, widths);
    writer_point(&f->w, node.slots[4], table.at);
    for (int i = 0; i < op->n_attributes; i++) {
        const ln_attribute *a = ln_op_attribute(op, i);
        double real = below(f, 8) ? (double)below(f, 100) / 64 : (double)number(f);
        uint64_t bits;
        if (widths[i] == '0') continue;
        memcpy(&bits, &real, 8);
        switch (a->type) {
        case LN_ATTRIBUTE_INT: writer_put(&f->w, table.slots[i], (uint64_t)number(f), 8); break;
        case LN_ATTRIBUTE_BOOL: writer_put(&f->w, table.slots[i], next(f) & 1, 1); break;
        case LN_ATTRIBUTE_FLOAT: writer_put(&f->w, table.slots[i], bits, 8); break;
        case LN_ATTRIBUTE_ENUM: writer_put(&f->w, table.slots[i], (uint64_t)below(f, a->limit), 1); break;
        case LN_ATTRIBUTE_DTYPE: writer_put(&f->w, table.slots[i], (uint64_t)below(f, LINNET_U4 + 1), 1); break;
        case LN_ATTRIBUTE_FUNCTION: writer_put(&f->w, table.slots[i], 1, 4); break;
        default: {
            bool dtypes = op->id == LN_OP_MAP && i == 3;
            int64_t dtype = 1 + below(f, LINNET_BOOL);
            unsigned char text[4] = {'a', (unsigned char)next(f), 'b', 0};
            size_t at = a->type == LN_ATTRIBUTE_BYTES   ? writer_vector(&f->w, text, (size_t)below(f, 5), 1, 1)
                        : dtypes                        ? writer_vector(&f->w, &dtype, 1, 8, 8)
                        : op->id == LN_OP_MAP && i == 0 ? program(f, inputs)
                                                        : list(f, a->type == LN_ATTRIBUTE_FLOATS);
            writer_point(&f->w, table.slots[i], at);
        }
        }
    }
}

static size_t elements(const linnet_operand *o) {
    size_t count = 1;
    for (int d = 0; d < o->rank; d++) {
        if (o->shape[d] < 0 || (o->shape[d] && count > MOST_ELEMENTS / (size_t)o->shape[d])) return SIZE_MAX;
        count *= (size_t)o->shape[d];
    }
    return o->rank < 0 ? SIZE_MAX : count;
}

static int one_of(fuzz *f, uint32_t mask) {
    int dtype;
    do dtype = 1 + below(f, LINNET_U4);
    while (!(mask >> dtype & 1));
    return dtype;
}

static void quantize(fuzz *f, linnet_operand *o, int slot) {
    int axis = o->rank > 0 ? below(f, o->rank) : 0;
    if (below(f, 3)) return;
    o->quant_axis = axis;
    o->quant_count = o->rank > 0 && below(f, 2) && o->shape[axis] > 0 && o->shape[axis] <= 16 ? o->shape[axis] : 1;
    o->quant_scheme = below(f, 16) == 0    ? below(f, 6) - 1
                      : o->quant_count > 1 ? LINNET_QUANT_AXIS
                                           : LINNET_QUANT_TENSOR;
    for (int i = 0; i < 16; i++) {
        f->scales[slot][i] = 0.001f * (float)(1 + below(f, 100));
        f->zeros[slot][i] = below(f, 4) ? 0 : below(f, 100);
    }
    o->scales = f->scales[slot];
    o->zeros = below(f, 2) ? f->zeros[slot] : NULL;
}

/* Bytes of `count` elements; two of i4 and u4 share a byte. */
static size_t bytes_of(int dtype, size_t count) {
    const size_t size = linnet_dtype_size(dtype);
    return size ? count * size : (count + 1) / 2;
}

static void fill(fuzz *f, linnet_operand *o, size_t count) {
    size_t size = linnet_dtype_size(o->dtype);
    unsigned char *to = o->data = malloc(count ? bytes_of(o->dtype, count) : 1);
    bool wild = below(f, 8) == 0;
    if (!to) exit(3);
    for (size_t i = 0; !size && i < bytes_of(o->dtype, count); i++) to[i] = (unsigned char)next(f);
    for (size_t i = 0; size && i < count; i++)
        if (wild && o->dtype != LINNET_BOOL)
            for (size_t k = 0; k < size; k++) to[i * size + k] = (unsigned char)next(f);
        else if (o->dtype == LINNET_F32)
            ((float *)o->data)[i] = (float)below(f, 64) / 8 - 2;
        else if (o->dtype == LINNET_F64)
            ((double *)o->data)[i] = (double)below(f, 64) / 8 - 2;
        else if (o->dtype == LINNET_F16 || o->dtype == LINNET_BF16)
            ((uint16_t *)o->data)[i] = (uint16_t)(0x3c00 + below(f, 512));
        else {
            int64_t value = o->dtype == LINNET_BOOL ? below(f, 2) : below(f, 7) - (below(f, 3) ? 0 : 2);
            memcpy(to + i * size, &value, size); /* little endian */
        }
}

static void make_inputs(fuzz *f, const ln_op *op, int n) {
    int64_t shape[LINNET_MAX_RANK];
    int rank = below(f, 4) ? 1 + below(f, 4) : below(f, 9), first = one_of(f, op->dtypes);
    for (int d = 0; d < LINNET_MAX_RANK; d++) shape[d] = below(f, 12) ? 1 + below(f, 5) : 0;
    for (int i = 0; i < n; i++) {
        linnet_operand *o = &f->inputs[i];
        size_t count;
        memset(o, 0, sizeof *o);
        o->dtype = below(f, 3) ? first : below(f, 2) ? LINNET_I64 : 1 + below(f, LINNET_U4);
        if (i >= op->min_inputs && below(f, 4) == 0) {
            o->dtype = LINNET_NONE;
            continue;
        }
        o->rank = below(f, 3) ? rank : below(f, 5);
        for (int d = 0; d < o->rank; d++) o->shape[d] = below(f, 4) ? shape[d] : below(f, 6);
        if (below(f, 30) == 0)
            o->rank = -1;
        else if (o->rank > 0 && below(f, 20) == 0)
            o->shape[below(f, o->rank)] = -1;
        quantize(f, o, i);
        count = elements(o);
        if (count != SIZE_MAX) fill(f, o, count);
    }
}

static void count(fuzz *f, linnet_status status, const linnet_error *error, const ln_op *op) {
    f->codes[status < 600 ? status : 599]++;
    if (status != LINNET_OK && (error->code != (int)status || !error->what[0])) {
        printf("fuzz_op: %s: status %d without a record\n", op->name, (int)status);
        exit(4);
    }
}

static void one_case(fuzz *f) {
    const ln_op *op;
    linnet_error error;
    linnet_status status;
    int inputs, outputs, ready = 1;
    do op = &ln_ops[below(f, LN_OP_LIMIT)];
    while (!op->name[0]);
    inputs = op->min_inputs + below(f, (op->max_inputs < 0 ? 4 : op->max_inputs) - op->min_inputs + 1);
    outputs = op->min_outputs + below(f, (op->max_outputs < 0 ? 3 : op->max_outputs) - op->min_outputs + 1);
    if (op->id == LN_OP_MAP) outputs = 1;
    make_node(f, op, inputs);
    make_inputs(f, op, inputs);
    memset(f->outputs, 0, sizeof f->outputs);
    for (int i = 0; i < outputs; i++) {
        if (below(f, 3) == 0) f->outputs[i].dtype = one_of(f, op->dtypes);
        quantize(f, &f->outputs[i], MOST_OPERANDS + i);
    }
    status = linnet_op_infer(f->w.bytes + 64, f->w.used - 64, f->inputs, inputs, f->outputs, outputs, &error);
    count(f, status, &error, op);
    for (int i = 0; i < outputs && status == LINNET_OK; i++) {
        linnet_operand *o = &f->outputs[i];
        size_t bytes;
        size_t most = elements(&f->inputs[op->id == LN_OP_NMS]); /* upper bound for sizes that depend on data */
        for (int d = 0; d < o->rank && (op->flags & LN_OP_DATA_DEPENDENT) && most < SIZE_MAX; d++)
            if (o->shape[d] < 0) o->shape[d] = (int64_t)most;
        bytes = elements(o);
        if (bytes == SIZE_MAX)
            ready = 0;
        else if (!(o->data = malloc(bytes ? bytes_of(o->dtype, bytes) : 1)))
            exit(3);
    }
    if (status == LINNET_OK && ready) {
        f->inferred++;
        status = linnet_op_evaluate(f->w.bytes + 64, f->w.used - 64, f->inputs, inputs, f->outputs, outputs, &error);
        count(f, status, &error, op);
        f->computed += status == LINNET_OK;
    }
    for (int i = 0; i < inputs; i++) free(f->inputs[i].data);
    for (int i = 0; i < outputs; i++) free(f->outputs[i].data);
}

int main(int argc, char **argv) {
    static fuzz f;
    long cases;
    if (argc != 3 || (cases = strtol(argv[1], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_op COUNT SEED\n");
        return 2;
    }
    f.state = strtoull(argv[2], NULL, 10);
    for (long i = 0; i < cases; i++) {
        alarm(CASE_SECONDS);
        if (getenv("FUZZ_VERBOSE")) fprintf(stderr, "case %ld: state %llu\n", i, (unsigned long long)f.state);
        one_case(&f);
    }
    alarm(0);
    printf("fuzz_op: %ld cases, %ld inferred, %ld computed;", cases, f.inferred, f.computed);
    for (int code = 1; code < 600; code++)
        if (f.codes[code]) printf(" %s %ld", linnet_status_name(code), f.codes[code]);
    printf("\n");
    return 0;
}
