/* source_text.h - the options of the writers of source text for devices. */
#ifndef LN_SOURCE_TEXT_H
#define LN_SOURCE_TEXT_H

#include "linnet_device.h"

/* Copies the options of a caller, and checks them and the buffer for the text. Errors: INVALID_ARGUMENT. */
linnet_status ln_source_take(const linnet_source_options *options, linnet_source_options *own, const char *text,
                             size_t size, const size_t *length);

#endif
