/* source_text.h - what the writers of source text for devices share (map_source.c). */
#ifndef LN_SOURCE_TEXT_H
#define LN_SOURCE_TEXT_H

#include "linnet_device.h"

/* source_text.c: copies the options of a caller, and checks them and the buffer for the text. Errors: INVALID_ARGUMENT.
 */
linnet_status ln_source_take(const linnet_source_options *options, linnet_source_options *own, const char *text,
                             size_t size, const size_t *length);

#endif
