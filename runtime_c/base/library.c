/* library.c - the public functions that need no object: version, names, properties of this machine. They keep no state;
   every result is computed on each call. */
#include "base/platform.h"
#include "base/platform_machine.h"
#include "base/types.h"
#include "linnet_ext.h"

#define TEXT_OF(x) #x
#define VERSION_TEXT(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *linnet_version(void) {
    return VERSION_TEXT(LINNET_VERSION_MAJOR, LINNET_VERSION_MINOR, LINNET_VERSION_PATCH);
}

const char *linnet_dtype_name(int dtype) {
    static const char names[][5] = {"none", "f32", "f16", "bf16", "f64", "i8",   "i16", "i32",
                                    "i64",  "u8",  "u16", "u32",  "u64", "bool", "i4",  "u4"};
    return dtype >= 0 && dtype <= LN_LAST_DTYPE ? names[dtype] : NULL;
}

size_t linnet_dtype_size(int dtype) { return ln_dtype_size(dtype); }

uint64_t linnet_memory_available(void) { return ln_memory_available(); }

int linnet_default_threads(void) { return ln_default_thread_count(); }

linnet_status linnet_bind_thread(int i, linnet_error *error) {
    LN_WANT_ERROR(error);
    int cores[LN_MOST_CORES];
    const int count = i < 0 ? 0 : ln_largest_cluster(cores);
    if (i < -1) {
        ln_fail(error, LINNET_INVALID_ARGUMENT, "a thread cannot be bound to a core with a negative number");
        ln_got(error, "%d", i);
        return ln_hint(error, "count from 0, or use -1 to end the binding"), LINNET_INVALID_ARGUMENT;
    }
    if (ln_bind_thread(count > 0 ? cores[i % count] : -1)) return LINNET_OK;
    ln_fail(error, LINNET_UNSUPPORTED, "this system does not let threads be bound to cores");
    return ln_hint(error, "run without it"), LINNET_UNSUPPORTED;
}
