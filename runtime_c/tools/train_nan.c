/* train_nan.c - finds where a NaN comes from: the first step of a run that produces one, and variables that hold one.
 * Sessions that count (linnet_session_config.count_special) record it for every step. */
#include "train_nan.h"

#include <string.h>

bool nan_find(const program *p, bool infinite, char *text, size_t size) {
    linnet_plan_info info = {.struct_size = sizeof info};
    if (linnet_plan_get_info(p->plan, &info)) return false;
    for (int i = 0; i < info.steps; i++) {
        linnet_step_info step = {.struct_size = sizeof step};
        if (linnet_session_get_step(p->session, i, &step)) continue;
        const uint64_t inf = step.infinite, nan = step.not_a_number;
        if (!nan && !(infinite && inf)) continue;
        snprintf(text, size, "op %s, tensor '%s'%s%s%s: %llu of its values are %s", step.op, step.name,
                 step.fused[0] ? " (with " : "", step.fused, step.fused[0] ? ")" : "",
                 (unsigned long long)(nan ? nan : inf), nan ? "NaN" : "infinite");
        return true;
    }
    return false;
}

/* NaN and infinity are exactly the numbers whose exponent bits are all ones. */
static bool finite(const void *data, int dtype, size_t bytes) {
    const size_t width = linnet_dtype_size(dtype);
    const unsigned char *p = data;
    if (dtype < LINNET_F32 || dtype > LINNET_F64) return true;
    const uint64_t mask = dtype == LINNET_F32    ? 0x7f800000u
                          : dtype == LINNET_F64  ? 0x7ff0000000000000u
                          : dtype == LINNET_BF16 ? 0x7f80u
                                                 : 0x7c00u;
    for (const unsigned char *end = p + bytes; p < end; p += width) {
        uint64_t bits = 0;
        memcpy(&bits, p, width);
        if ((bits & mask) == mask) return false;
    }
    return true;
}

bool nan_in_inputs(const program *p, const long long *rows, char *text, size_t size) {
    for (int i = 0; i < linnet_plan_input_count(p->plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (linnet_plan_get_input(p->plan, i, &info) || !info.bytes || info.rank < 1) continue;
        const size_t each = info.bytes / (size_t)info.shape[0];
        const char *data = linnet_session_input(p->session, i);
        for (long long row = 0; row < info.shape[0]; row++) {
            if (finite(data + (size_t)row * each, info.dtype, each)) continue;
            snprintf(text, size, "input '%s' holds NaN or infinity in row %lld of the data", info.name, rows[row]);
            return true;
        }
    }
    return false;
}

bool nan_in_variables(const linnet_model *model, linnet_store *store, void *room, char *name, size_t size) {
    for (int i = 0; i < linnet_model_variable_count(model); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (linnet_model_get_variable(model, i, &info) || !info.bytes ||
            linnet_store_read(store, info.name, room, info.bytes, NULL) || finite(room, info.dtype, info.bytes))
            continue;
        snprintf(name, size, "%s", info.name);
        return true;
    }
    return false;
}
