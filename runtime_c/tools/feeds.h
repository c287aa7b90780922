/* feeds.h - the files that linnet-run reads for the inputs of a model: .npy files, pictures and sound. */
#ifndef LN_TOOLS_FEEDS_H
#define LN_TOOLS_FEEDS_H

#include "npy.h"
#include "options.h"

/* A file of the command line, and what is in it. */
typedef struct feed {
    const char *name, *path;
    npy_array array;
} feed;

/* Reads the file for this input. Returns TOOL_OK, or another exit status after printing the error. */
int feed_read(const tool_options *options, const linnet_model *model, const linnet_tensor_info *input, feed *f);
/* Tells whether the input takes an array of this dtype and shape. */
bool feed_fits(const linnet_tensor_info *input, const npy_array *array);

#endif
