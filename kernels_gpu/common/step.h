/* step.h - reads a step of a plan: its operands, attributes and map. */
#ifndef LG_STEP_H
#define LG_STEP_H

#include "kernels_gpu/common/gpu.h"

/* Reads the step. Returns false if the step has more operands than a launch can have. */
bool lg_step_open(lg_step *out, const lg_machine *machine, const linnet_step *step);
/* Return the first value of an attribute, or `otherwise` if the attribute has no value. */
int64_t lg_integer(const lg_step *s, const char *attribute, int64_t otherwise);
double lg_real(const lg_step *s, const char *attribute, double otherwise);
/* Returns value i of an attribute; `otherwise` if the attribute has fewer values. */
int64_t lg_item(const lg_step *s, const char *attribute, int i, int64_t otherwise);
/* Returns the number of values of an attribute. */
int lg_items(const lg_step *s, const char *attribute);

/* Returns the number of elements. */
int64_t lg_count(const linnet_device_tensor *t);
/* Tells whether an optional input is absent. */
bool lg_absent(const lg_step *s, int input);
/* Tells whether somebody reads the output. */
bool lg_wanted(const lg_step *s, int output);
bool lg_same_shape(const linnet_device_tensor *a, const linnet_device_tensor *b);
/* Returns the product of the dims [from, to). */
int64_t lg_shape_product(const linnet_device_tensor *t, int from, int to);
/* Returns the axis in [0, rank). A negative `axis` counts from the end. */
int lg_axis(int64_t axis, int rank);
/* Tells whether the step is a product of quantized integers. lg_put_store then converts the integer sums to results. */
bool lg_converts_sums(const lg_step *s);

/* Returns the bytes of an element; 0 if elements share a byte or the dtype is unknown. */
int lg_bytes_of(int dtype);
/* Returns the type of an element in memory, such as "ln_u16" for f16; NULL if kernels cannot read the dtype. */
const char *lg_type_of(int dtype);
/* Returns the name, such as "f16". */
const char *lg_word_of(int dtype);

#endif
