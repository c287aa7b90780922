/* source_text.c - the options of the writers of source text for devices. */
#include "map/source_text.h"

#include "base/structs.h"
#include "kernel/parts.h"

#include <string.h>

enum { LONGEST_PREFIX = 32 };

linnet_status ln_source_take(const linnet_source_options *options, linnet_source_options *own, const char *text,
                             size_t size, const size_t *length) {
    static const linnet_source_options defaults = {.struct_size = sizeof defaults};
    linnet_status status = LN_TAKE(linnet_source_options, prefix, own, options != NULL ? options : &defaults, NULL);
    if (status != LINNET_OK) return status;
    if (own->language < LINNET_SOURCE_C || own->language > LINNET_SOURCE_CUDA || length == NULL ||
        (text == NULL && size > 0))
        return LINNET_INVALID_ARGUMENT;
    if (own->prefix == NULL) own->prefix = "";
    return strlen(own->prefix) <= LONGEST_PREFIX ? LINNET_OK : LINNET_INVALID_ARGUMENT;
}
