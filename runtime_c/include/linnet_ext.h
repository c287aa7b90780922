/* linnet_ext.h - for programs that build graphs, and for devices outside the library.
 * A program that builds graphs can infer the shapes of one op, evaluate the op, and compute the checksum of a segment.
 * A device is a table of functions; a plan may place steps on a device. LINNET_EXT_VERSION is the version of this
 * header, which is independent of the library's version. */
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
    void *data;                     /* dense; NULL: the value is not known */
    const float *scale;             /* `quant_count` scales along `quant_axis`, or 1 for the tensor; NULL: none */
    const int32_t *zero;
    int32_t quant_count;
    int32_t quant_axis;
    int32_t quant_block; /* > 0: elements along quant_axis that share a scale; scales are in row-major order of the
                            blocks */
} linnet_operand;

/* Infers the shapes and dtypes of the outputs. `node` is a finished flatbuffer with root linnet.fb.Node; the function
 * reads its op and attributes, but not its indices. Set outputs[i].dtype to the dtype that the file will declare, or to
 * LINNET_NONE.
 * Errors: CORRUPT, UNSUPPORTED, BAD_ATTRIBUTE, SHAPE_MISMATCH, WRONG_DTYPE, OUT_OF_MEMORY. Thread-safe. */
LINNET_API linnet_status linnet_op_infer(const void *node, size_t size, const linnet_operand *inputs, int input_count,
                                         linnet_operand *outputs, int output_count, linnet_error *error);
/* Computes the outputs with the reference kernel into outputs[i].data, which the caller has allocated for the shapes
 * that linnet_op_infer gave. Errors: those of linnet_op_infer, and INDEX_OUT_OF_RANGE. Thread-safe. */
LINNET_API linnet_status linnet_op_evaluate(const void *node, size_t size, const linnet_operand *inputs,
                                            int input_count, linnet_operand *outputs, int output_count,
                                            linnet_error *error);

/* Returns the CRC-32C (RFC 3720, B.4) of all bytes up to the end of `data`. `crc` is the checksum of the bytes before
 * `data`, or 0 if there are none. Segments of .lnt files and frames (docs/protocol.md) have this checksum. Uses CRC
 * instructions if the processor has them. Thread-safe. */
LINNET_API uint32_t linnet_crc32c(uint32_t crc, const void *data, size_t size);

/* Copy structs between versions of a header, as this library does with its own (linnet.h says how). For libraries whose
 * headers have structs with a struct_size too. `ours` has the `size` of the library's header, `theirs` is the caller's,
 * and `first` is the size of the struct in its first version. `name` is the struct's name, for the error.
 * linnet_struct_take reads a config, linnet_struct_give fills an info. Errors: INVALID_ARGUMENT. Thread-safe. */
LINNET_API linnet_status linnet_struct_take(void *ours, size_t size, const void *theirs, size_t first, const char *name,
                                            linnet_error *error);
LINNET_API linnet_status linnet_struct_give(const void *ours, size_t size, void *theirs, size_t first, const char *name,
                                            linnet_error *error);

/* ---- devices --------------------------------------------------------------------------------------------------- */

/* A step that a plan may place on a device: its op and attributes by name, and the shapes of its operands. */
typedef struct linnet_step linnet_step;
LINNET_API const char *linnet_step_op(const linnet_step *step);
LINNET_API const char *linnet_step_name(const linnet_step *step);
LINNET_API int linnet_step_input_count(const linnet_step *step);
LINNET_API int linnet_step_output_count(const linnet_step *step);
LINNET_API linnet_status linnet_step_input(const linnet_step *step, int i, linnet_tensor_info *out);
LINNET_API linnet_status linnet_step_output(const linnet_step *step, int i, linnet_tensor_info *out);
/* Returns the values of an integer, bool, enum or integer-list attribute, and their number in *count; NULL if the step
 * does not have the attribute. */
LINNET_API const int64_t *linnet_step_integers(const linnet_step *step, const char *attribute, int *count);
LINNET_API const double *linnet_step_floats(const linnet_step *step, const char *attribute, int *count);

/* A device. Each function receives `context`. Buffers are device pointers, which the runtime never dereferences.
 * Operands on a device are dense. Functions that return int return 0 for success, except `supports`. The struct must
 * outlive every plan that names it. */
struct linnet_device {
    size_t struct_size;
    uint32_t version; /* LINNET_EXT_VERSION */
    const char *name;
    void *context;
    int (*supports)(void *context, const linnet_step *step); /* 1: this device can run the step */
    void *(*allocate)(void *context, size_t size);           /* 64-byte aligned, or NULL */
    void (*release)(void *context, void *buffer, size_t size);
    int (*upload)(void *context, void *device_to, const void *host_from, size_t size);
    int (*download)(void *context, void *host_to, const void *device_from, size_t size);
    int (*prepare)(void *context, const linnet_step *step, void **state); /* once per session; may be NULL */
    void (*unprepare)(void *context, void *state);
    int (*run)(void *context, const linnet_step *step, void *state, const void *const *inputs, void *const *outputs);
    int (*synchronise)(void *context); /* waits until all submitted work has ended */
};

/* A shared library that contains a device exports this function; liblinnet does not. Python's linnet.load_device(path)
 * calls the function. The shared library still owns the returned device. */
const linnet_device *linnet_extension_device(void);

#ifdef __cplusplus
}
#endif
#endif
