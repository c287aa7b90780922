/* source_text.h - the options of the writers of source text for devices. */
#ifndef LN_SOURCE_TEXT_H
#define LN_SOURCE_TEXT_H

#include "linnet_device.h"

/* Copies a caller's options to *own, with defaults for what they lack; options NULL means all defaults. Checks the
 * options, the buffer for the text, and `length`, which must not be NULL. Errors: INVALID_ARGUMENT. */
linnet_status ln_source_take(const linnet_source_options *options, linnet_source_options *own, const char *text,
                             size_t size, const size_t *length);

#endif
