/* step.h - reads a step of a plan: its operands, attributes and map. */
#ifndef LG_STEP_H
#define LG_STEP_H

#include "kernels_gpu/common/gpu.h"

/* Reads the step. False: it has more operands than a launch takes. */
bool lg_step_open(lg_step *out, const lg_machine *machine, const linnet_step *step);
/* The attribute's first value, or the default if the list is empty. */
int64_t lg_integer(const lg_step *s, const char *attribute, int64_t otherwise);
double lg_real(const lg_step *s, const char *attribute, double otherwise);
/* Value i of a list; the default if it has no such value. */
int64_t lg_item(const lg_step *s, const char *attribute, int i, int64_t otherwise);
int lg_items(const lg_step *s, const char *attribute);

int64_t lg_count(const linnet_device_tensor *t); /* of elements */
bool lg_absent(const lg_step *s, int input);
bool lg_wanted(const lg_step *s, int output); /* false: nobody reads the output */
bool lg_same_shape(const linnet_device_tensor *a, const linnet_device_tensor *b);
int64_t lg_shape_product(const linnet_device_tensor *t, int from, int to);
int lg_axis(int64_t axis, int rank); /* from the end if negative */
/* Whether the step is a product of quantized integers, whose sums lg_put_store converts to results. */
bool lg_converts_sums(const lg_step *s);

int lg_bytes_of(int dtype);        /* of an element; 0: packed or unknown */
const char *lg_type_of(int dtype); /* "ln_u16", as it is stored; NULL: kernels cannot read it */
const char *lg_word_of(int dtype); /* "f16" */

#endif
