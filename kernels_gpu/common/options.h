/* options.h - the options of a device, which users write after the first comma of its name: "cuda:0,place=cost". */
#ifndef LG_OPTIONS_H
#define LG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* How the device gets inputs and outputs that are in the host's memory: by copies (memory=copied), by copies through
 * memory that the driver has pinned (memory=pinned), or in place (memory=shared). */
enum { LG_MEMORY_DEFAULT, LG_COPIED, LG_PINNED, LG_SHARED };

typedef struct lg_options {
    bool f16;          /* f16=on: sums of floats may be f16 */
    bool modelled;     /* place=cost: costs are those of a model; otherwise the device gets all steps that it can run */
    bool cached;       /* false with cache=off */
    char folder[1024]; /* cache=DIR */
    int memory;        /* memory=...: LG_COPIED, LG_PINNED or LG_SHARED */
    char prefer[48];   /* kernel=NAME: the kernel of this name runs every step that it can run. For tests */
    bool graphs;       /* false with graphs=off; true: repeated work is submitted as a graph */
    char texts[1024];  /* texts=DIR: the text of each program is written to this folder. For tests and for builds */
    char programs[1024]; /* programs=FILE: compiled programs, used instead of those that the library contains */
    int compute;         /* for=75, 87, 90, ...: plans for a GPU that this machine does not have; 0: for its own GPUs */
} lg_options;

/* The options that only some backends have. All backends have place, cache, memory and kernel. */
enum { LG_HAS_F16 = 1, LG_HAS_SHARED = 2, LG_HAS_GRAPHS = 4, LG_HAS_TEXTS = 8, LG_HAS_FOR = 16, LG_HAS_PROGRAMS = 32 };

/* Reads a text such as "place=cost,cache=DIR". `backend` is the backend's name for errors, and `has` is the set of its
 * LG_HAS_... options. If the text is wrong, returns false and writes the reason to `why`. */
bool lg_read_options(const char *backend, unsigned has, const char *text, lg_options *out, char *why, size_t size);
/* Returns the folder of compiled programs; NULL if cache=off was given. */
static inline const char *lg_folder_of(const lg_options *options) { return options->cached ? options->folder : NULL; }

#endif
