/* options.h - options of a device: the text after the first comma of its name. */
#ifndef LG_OPTIONS_H
#define LG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Inputs and outputs in memory of the host: copied to and from the device (memory=copied), through memory that the
 * driver has pinned (memory=pinned), or used in place (memory=shared). */
enum { LG_MEMORY_DEFAULT, LG_COPIED, LG_PINNED, LG_SHARED };

typedef struct lg_options {
    bool f16;            /* f16=on: sums of floats may be f16 */
    bool modelled;       /* place=cost: costs are those of a model; else the device gets all that it can run */
    bool cached;         /* cache=off clears it */
    char folder[1024];   /* cache=DIR */
    int memory;          /* memory=... */
    char prefer[48];     /* kernel=NAME: the kernel of this name runs what it can. For tests */
    bool graphs;         /* graphs=off clears it: repeated work is submitted as a graph */
    char texts[1024];    /* texts=DIR: each program's text is written there. For tests and for builds */
    char programs[1024]; /* programs=FILE: compiled programs, in place of those that the library contains */
    int compute;         /* for=75, 87, 90, ...: plans for a GPU that is not there. 0: for those of the machine */
} lg_options;

/* Which options a backend has besides place, cache, memory and kernel. */
enum { LG_HAS_F16 = 1, LG_HAS_SHARED = 2, LG_HAS_GRAPHS = 4, LG_HAS_TEXTS = 8, LG_HAS_FOR = 16, LG_HAS_PROGRAMS = 32 };

/* Reads "place=cost,cache=DIR" for a backend, which has some of the options. Returns false with the reason in `why`. */
bool lg_read_options(const char *backend, unsigned has, const char *text, lg_options *out, char *why, size_t size);
/* The folder of compiled programs; NULL: none. */
static inline const char *lg_folder_of(const lg_options *options) { return options->cached ? options->folder : NULL; }

#endif
