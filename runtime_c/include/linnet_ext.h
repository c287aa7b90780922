/* linnet_ext.h - for builders of graphs and for devices outside the library. Versioned apart from linnet.h.
 * Builders: shape rule and evaluation of one op, the checksum of segments. Devices: a table of functions that a plan
 * may place steps on. */
#ifndef LINNET_EXT_H
#define LINNET_EXT_H

#include "linnet.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LINNET_EXT_VERSION 1

/* ---- one op, for builders (the Python converter folds constants with it) -------------------------------------- */

typedef struct linnet_operand {
    int32_t dtype;                  /* LINNET_NONE: absent */
    int32_t rank;                   /* -1: unknown */
    int64_t shape[LINNET_MAX_RANK]; /* -1: unknown */
    void *data;                     /* NULL: value not known; dense otherwise */
    const float *scale;             /* quantization, or NULL; `quant_count` entries along quant_axis (1: per tensor) */
    const int32_t *zero;
    int32_t quant_count;
    int32_t quant_axis;
} linnet_operand;

/* Shapes and dtypes of the outputs. `node` is a finished flatbuffer whose root is linnet.fb.Node (op and attributes are
 * read; indices are not). outputs[i].dtype may be preset to what the file will declare, NONE otherwise.
 * Errors: CORRUPT, UNSUPPORTED, BAD_ATTRIBUTE, SHAPE_MISMATCH, WRONG_DTYPE, OUT_OF_MEMORY. Thread safe. */
LINNET_API linnet_status linnet_op_infer(const void *node, size_t size, const linnet_operand *inputs, int input_count,
                                         linnet_operand *outputs, int output_count, linnet_error *error);
/* Computes the outputs with the reference kernel into outputs[i].data, which the caller made to fit linnet_op_infer.
 * Errors: as linnet_op_infer, and INDEX_OUT_OF_RANGE. Thread safe. */
LINNET_API linnet_status linnet_op_evaluate(const void *node, size_t size, const linnet_operand *inputs,
                                            int input_count, linnet_operand *outputs, int output_count,
                                            linnet_error *error);

/* CRC-32C (RFC 3720, B.4) of `data` appended to what gave `crc`; begin with 0. The digest of segments in .lnt files,
 * and of frames in docs/protocol.md. By the processor's instructions where it has them. Thread safe. */
LINNET_API uint32_t linnet_crc32c(uint32_t crc, const void *data, size_t size);

/* ---- devices --------------------------------------------------------------------------------------------------- */

/* A step that a device is asked about: op by name, operands by shape, attributes by name. */
typedef struct linnet_step linnet_step;
LINNET_API const char *linnet_step_op(const linnet_step *step);
LINNET_API const char *linnet_step_name(const linnet_step *step);
LINNET_API int linnet_step_input_count(const linnet_step *step);
LINNET_API int linnet_step_output_count(const linnet_step *step);
LINNET_API linnet_status linnet_step_input(const linnet_step *step, int i, linnet_tensor_info *out);
LINNET_API linnet_status linnet_step_output(const linnet_step *step, int i, linnet_tensor_info *out);
/* Pointer to the values of an integer, bool, enum or integer-list attribute, and their number; NULL: no such attribute.
 */
LINNET_API const int64_t *linnet_step_integers(const linnet_step *step, const char *attribute, int *count);
LINNET_API const double *linnet_step_floats(const linnet_step *step, const char *attribute, int *count);

/* A device. All functions get `context`. Buffers are device pointers: the runtime never reads through them. Operands on
 * a device are dense. Functions that return int give 0 for success. The struct must outlive every plan that names it.
 */
struct linnet_device {
    size_t struct_size;
    uint32_t version; /* LINNET_EXT_VERSION */
    const char *name;
    void *context;
    int (*supports)(void *context, const linnet_step *step); /* 1: this device takes the step */
    void *(*allocate)(void *context, size_t size);           /* 64-byte aligned, or NULL */
    void (*release)(void *context, void *buffer, size_t size);
    int (*upload)(void *context, void *device_to, const void *host_from, size_t size);
    int (*download)(void *context, void *host_to, const void *device_from, size_t size);
    int (*prepare)(void *context, const linnet_step *step, void **state); /* once per session; may be NULL */
    void (*unprepare)(void *context, void *state);
    int (*run)(void *context, const linnet_step *step, void *state, const void *const *inputs, void *const *outputs);
    int (*synchronise)(void *context); /* all work submitted so far has ended */
};

/* What a shared library with a device exports, not liblinnet: Python's linnet.load_device(path) calls it. The device
 * stays owned by that library. */
const linnet_device *linnet_extension_device(void);

#ifdef __cplusplus
}
#endif
#endif
