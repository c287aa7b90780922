/* library.c - the public functions that need no object: version, names, properties of this machine. They keep no state;
   every result is computed on each call. */
#include "base/platform.h"
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
