/* words.c - the names of steps, shortened in their middle, and the dtypes and shapes of tensors. */
#include "words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *tool_step_name(const linnet_step_info *step, size_t width, char *text, size_t size) {
    const bool fused = step->fused && step->fused[0];
    char whole[1024];
    int length = snprintf(whole, sizeof whole, "%s%s%s", step->name, fused ? " + " : "", fused ? step->fused : "");
    if (length >= (int)sizeof whole) length = (int)sizeof whole - 1;
    const size_t head = (width - 3) / 2, tail = width - 3 - head;
    if ((size_t)length <= width)
        snprintf(text, size, "%s", whole);
    else
        snprintf(text, size, "%.*s...%s", (int)head, whole, whole + length - (int)tail);
    return text;
}

const char *tool_tensor_text(const linnet_tensor_info *info, char *text, size_t size) {
    const char *dtype = linnet_dtype_name(info->dtype);
    size_t used = (size_t)snprintf(text, size, "%s [", dtype ? dtype : "?");
    if (info->rank < 0) snprintf(text + used, size - used, "...]");
    for (int i = 0; i < info->rank && used < size; i++)
        used += (size_t)(info->shape[i] < 0
                             ? snprintf(text + used, size - used, "%s?", i ? ", " : "")
                             : snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)info->shape[i]));
    if (info->rank >= 0 && used < size) snprintf(text + used, size - used, "]");
    return text;
}
