/* program.h - programs of a device: the whole text, and those that have been compiled. */
#ifndef LG_PROGRAM_H
#define LG_PROGRAM_H

#include "kernels_gpu/common/gpu.h"
#include <pthread.h>
#include <stdint.h>

/* A compiled program, by the hashes of its launch's own text. */
typedef struct lg_program {
    struct lg_program *next;
    uint64_t hash[2];
    void *code; /* cl_program or CUmodule */
} lg_program;

/* The programs of a device. They live as long as the process. */
typedef struct lg_program_list {
    pthread_mutex_t lock;
    lg_program *first;
} lg_program_list;

void lg_programs_init(lg_program_list *list);
/* NULL: the device does not have it yet. */
void *lg_program_find(lg_program_list *list, const uint64_t hash[2]);
/* False: there is no memory. Two sessions may compile the same program at once; both are kept. */
bool lg_program_keep(lg_program_list *list, const uint64_t hash[2], void *code);

/* Two hashes of 64 bits. */
void lg_hash(const char *text, uint64_t out[2]);
/* The text that a compiler gets: the prelude, the dialect, and the launch's own. The caller frees it; NULL: no memory,
 * or the host refuses. */
char *lg_whole_text(const lg_machine *machine, const lg_launch *launch);

#endif
