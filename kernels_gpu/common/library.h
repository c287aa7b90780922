/* library.h - what the backends share besides kernels: options of a device, texts of failures, compiled programs in
 * files, the whole text of a program, and the list of devices that a library gives. */
#ifndef LG_LIBRARY_H
#define LG_LIBRARY_H

#include "kernels_gpu/common/gpu.h"

#include <pthread.h>

/* Inputs and outputs in memory of the host: copied to and from the device (memory=copied), through memory that the
 * driver has pinned (memory=pinned), or used in place (memory=shared). */
enum { LG_MEMORY_DEFAULT, LG_COPIED, LG_PINNED, LG_SHARED };

/* Options of a device: the text after the first comma of its name. */
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

/* The devices for one text of options. They live as long as the process. */
typedef struct lg_set lg_set;
enum { LG_MOST_DEVICES = 32 };
struct lg_set {
    lg_set *next;
    const char *options;
    const linnet_device *devices[LG_MOST_DEVICES];
    int count;
    const char *missing;
};

typedef struct lg_backend {
    const char *name; /* "OpenCL" */
    unsigned options; /* LG_HAS_... */
    void (*find)(const linnet_host *host, const lg_options *options, lg_set *out);
} lg_backend;

/* linnet_extension_devices of a backend: finds the devices once for each text of options. */
int lg_list_devices(const lg_backend *backend, const linnet_host *host, const char *options, linnet_device_list *list);

/* `cost` of a device: nanoseconds; negative: no kernel can run the step. */
double lg_cost(const lg_machine *machine, const lg_options *options, const linnet_step *step);

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Codes of failures: those of the driver, negative; and these. */
enum { LG_NO_MEMORY = 1, LG_BAD_STEP = 2, LG_FIRST_TEXT = 100 };

/* Texts of failures with codes from LG_FIRST_TEXT on. They live as long as the device. */
typedef struct lg_failures {
    pthread_mutex_t lock;
    const char *texts[64];
    int count;
} lg_failures;

void lg_failures_init(lg_failures *failures);
/* Keeps a text and returns its code. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int lg_failure(lg_failures *failures, const char *format, ...);
/* The text of a code that is not the driver's. */
const char *lg_failure_text(lg_failures *failures, int code);

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Two hashes of 64 bits. */
void lg_hash(const char *text, uint64_t out[2]);
/* The text that a compiler gets: the prelude, the dialect, and the launch's own. The caller frees it; NULL: no memory,
 * or the host refuses. */
char *lg_whole_text(const lg_machine *machine, const lg_launch *launch);
/* cache.c: programs in files, by a hash of the key. Both do nothing if the folder cannot be used. */
size_t lg_cache_load(const char *folder, const char *key, unsigned char **data); /* the caller frees it; 0: none */
void lg_cache_store(const char *folder, const char *key, const void *data, size_t size);
/* The same from and to the host's cache, or without one from and to the folder of the options. */
size_t lg_kept_load(const linnet_program_cache *host, const lg_options *options, const char *key, unsigned char **data);
void lg_kept_store(const linnet_program_cache *host, const lg_options *options, const char *key, const void *data,
                   size_t size);
/* The user's folder for programs: $XDG_CACHE_HOME/linnet/programs or ~/.cache/linnet/programs. False: there is none. */
bool lg_cache_folder(char *out, size_t size);

#endif
