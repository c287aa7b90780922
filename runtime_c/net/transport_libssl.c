/* transport_libssl.c - loads OpenSSL's libssl at run time: the system's version, or one given by its path.
 * libcrypto is loaded with it as a dependency. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* dladdr */
#endif

#include "net/transport_libssl.h"

#include "net/error.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#if defined(__APPLE__)
static const char *const NAMES[] = {"libssl.3.dylib", "libssl.1.1.dylib"}; /* libssl.dylib is Apple's, which aborts */
#else
static const char *const NAMES[] = {"libssl.so.3", "libssl.so.1.1", "libssl.so"};
#endif
enum { OLDEST = 0x10101000 }; /* version 1.1.1, the first that supports TLS 1.3 */

static linnet_status unusable(const char *name, linnet_error *error) {
    ln_sync_at(error, name);
    ln_sync_expected(error, "libssl of OpenSSL 1.1.1 or 3");
    return ln_sync_hint(error,
                        "keys and certificates need it: install OpenSSL (Debian, Ubuntu: apt-get install libssl3)");
}

/* Gets a function pointer from dlsym's object pointer without a cast that C does not define. */
static bool find(void *library, const char *name, void *pointer) {
    void *found = dlsym(library, name);
    memcpy(pointer, &found, sizeof found);
    return found != NULL;
}

linnet_status ln_net_libssl_open(const char *path, ln_net_libssl *out, linnet_error *error) {
    const char *name = path, *lacking = NULL;
    memset(out, 0, sizeof *out);
    if (path) out->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !path && !out->library && i < sizeof NAMES / sizeof *NAMES; i++)
        out->library = dlopen(name = NAMES[i], RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        const char *why = dlerror();
        ln_sync_fail(error, LINNET_UNSUPPORTED, "cannot load OpenSSL: %s", why ? why : "unknown reason");
        return unusable(path ? path : NAMES[0], error);
    }
#define LN_NET_FIND(result, function, parameters)                                                                      \
    if (!lacking && !find(out->library, #function, &out->function)) lacking = #function;
    LN_NET_LIBSSL(LN_NET_FIND)
#undef LN_NET_FIND
    if (lacking) {
        ln_sync_fail(error, LINNET_UNSUPPORTED, "the library has no function %s", lacking);
        return unusable(name, error);
    }
    if (out->OpenSSL_version_num() < OLDEST) {
        ln_sync_fail(error, LINNET_UNSUPPORTED, "OpenSSL is too old for TLS 1.3");
        ln_sync_got(error, "version %lx", out->OpenSSL_version_num());
        return unusable(name, error);
    }
    return LINNET_OK;
}

void *ln_net_libssl_data(const void *ssl, void *caller) {
    void *(*get)(const void *, int) = NULL;
    void *library, *data = NULL;
    Dl_info place;
    if (!dladdr(caller, &place) || !(library = dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD))) return NULL;
    if (find(library, "SSL_get_ex_data", &get)) data = get(ssl, 0);
    dlclose(library);
    return data;
}
