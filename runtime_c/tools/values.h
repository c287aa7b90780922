/* values.h - prints the values of a tensor as text or as JSON, and JSON texts and numbers. */
#ifndef LN_TOOLS_VALUES_H
#define LN_TOOLS_VALUES_H

#include "linnet.h"

#include <stdbool.h>
#include <stddef.h>

/* tool_json_text prints a text in quotes, tool_json_characters without them, tool_json_entry a key and a text, and
 * tool_json_number a number with so many digits. */
void tool_json_characters(const char *text, size_t length);
void tool_json_text(const char *text, size_t length);
void tool_json_entry(const char *key, const char *text);
void tool_json_number(double value, int digits);
/* Returns the number of elements. */
long long tool_count(const linnet_tensor_info *info);
/* Computes the least, the mean and the largest value; all are NaN if an element is NaN. Returns false for a tensor
 * without elements. */
bool tool_range(const linnet_tensor_info *info, const void *data, double *least, double *mean, double *most);
/* Prints the first `most` elements, separated by spaces, or by commas as JSON needs them. */
void tool_print_values(const linnet_tensor_info *info, const void *data, long long most, bool json);

#endif
