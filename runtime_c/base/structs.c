/* structs.c - the public functions that initialize structs and copy them between versions of the headers.
 * Only this file knows how much of a caller's struct may be read or written. */
#include "base/structs.h"

#include "base/error.h"
#include "base/layout.h"
#include "base/types.h"

#include <string.h>

enum { LARGEST = 65536 }; /* a struct_size above this is not a size, but memory that was never initialized */

void linnet_struct_init(void *address, size_t size) {
    if (address == NULL || size < sizeof size) return;
    memset(address, 0, size);
    memcpy(address, &size, sizeof size);
}

#define DEFINE_INIT(name)                                                                                              \
    void name##_init_sized(name *address, size_t size) { linnet_struct_init(address, size); }
DEFINE_INIT(linnet_tensor_info)
DEFINE_INIT(linnet_model_config)
DEFINE_INIT(linnet_checkpoint_config)
DEFINE_INIT(linnet_plan_config)
DEFINE_INIT(linnet_plan_info)
DEFINE_INIT(linnet_step_info)
DEFINE_INIT(linnet_session_config)
DEFINE_INIT(linnet_run_config)
DEFINE_INIT(linnet_packed)
DEFINE_INIT(linnet_verified)
DEFINE_INIT(linnet_plan_candidate)
DEFINE_INIT(linnet_plan_pass)
DEFINE_INIT(linnet_user_op)
DEFINE_INIT(linnet_device_list)
DEFINE_INIT(linnet_plan_device_info)
DEFINE_INIT(linnet_device_span)

/* Returns the struct_size that the caller has set. If the number cannot be a size, returns 0 and fills the error. */
static size_t size_of(const void *theirs, size_t first, const char *name, linnet_error *error) {
    size_t size = 0;
    if (theirs != NULL) memcpy(&size, theirs, sizeof size);
    if (theirs != NULL && size >= first && size <= LARGEST) return size;
    if (theirs == NULL) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "a pointer to %s is NULL", name);
    } else {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "%s.struct_size is not the size of the struct", name);
        ln_expected(error, "%zu or more", first);
        ln_got(error, "%zu", size);
    }
    ln_hint(error, "initialize the struct with %s_init", name);
    return 0;
}

linnet_status linnet_struct_take(void *ours, size_t size, const void *theirs, size_t first, const char *name,
                                 linnet_error *error) {
    const size_t their_size = size_of(theirs, first, name, error);
    if (their_size == 0) return LINNET_INVALID_ARGUMENT;
    for (size_t i = size; i < their_size; i++) {
        if (((const char *)theirs)[i] == 0) continue;
        ln_fail(error, LINNET_INVALID_ARGUMENT, "%s has a field that this library does not know", name);
        ln_expected(error, "0 after the first %zu bytes", size);
        ln_got(error, "another value in byte %zu", i);
        ln_hint(error,
                "use a newer library (this is %s), or initialize the struct with %s_init and do not set the field",
                linnet_version(), name);
        return LINNET_INVALID_ARGUMENT;
    }
    linnet_struct_init(ours, size);
    const size_t common = their_size < size ? their_size : size;
    memcpy((char *)ours + sizeof size, (const char *)theirs + sizeof size, common - sizeof size);
    return LINNET_OK;
}

linnet_status linnet_struct_give(const void *ours, size_t size, void *theirs, size_t first, const char *name,
                                 linnet_error *error) {
    const size_t their_size = size_of(theirs, first, name, error);
    if (their_size == 0) return LINNET_INVALID_ARGUMENT;
    const size_t common = their_size < size ? their_size : size;
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, common - sizeof size);
    memset((char *)theirs + common, 0, their_size - common);
    return LINNET_OK;
}

linnet_status ln_tensor_info(const ln_tensor *t, const char *name, linnet_tensor_info *out) {
    linnet_tensor_info info = {.name = name, .dtype = t->dtype, .rank = t->rank, .quant_axis = -1};
    uint64_t bytes;
    for (int d = 0; d < t->rank; ++d) info.shape[d] = t->dims[d];
    if (ln_bytes(t, &bytes)) info.bytes = (size_t)bytes;
    info.bits = ln_dtype_bits(t->dtype);
    info.layout = ln_layout_name(t->layout);
    if (t->quant != NULL && t->quant->scheme != LN_QUANT_NONE) {
        const ln_quant *q = t->quant;
        info.quant_scheme = q->scheme;
        info.quant_axis = q->scheme == LN_QUANT_TENSOR ? -1 : q->axis;
        info.quant_block = q->scheme == LN_QUANT_BLOCK ? (int32_t)q->block : 0;
        info.quant_count = q->count;
        info.scales = q->scale;
        info.zeros = q->zero;
        if (q->scheme == LN_QUANT_TENSOR && q->count > 0) {
            info.scale = q->scale[0];
            info.zero = q->zero != NULL ? q->zero[0] : 0;
        }
    }
    return LN_GIVE(linnet_tensor_info, layout, &info, out);
}
