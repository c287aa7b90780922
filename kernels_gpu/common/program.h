/* program.h - the compiled programs of a device, and the whole text of a program. */
#ifndef LG_PROGRAM_H
#define LG_PROGRAM_H

#include "kernels_gpu/common/gpu.h"
#include <pthread.h>
#include <stdint.h>

/* A compiled program. `hash` has the two hashes of the text by which it is found. */
typedef struct lg_program {
    struct lg_program *next;
    uint64_t hash[2];
    void *code; /* cl_program or CUmodule */
} lg_program;

/* The programs of a device. They exist until the process ends. The functions below are thread-safe. */
typedef struct lg_program_list {
    pthread_mutex_t lock;
    lg_program *first;
} lg_program_list;

void lg_programs_init(lg_program_list *list);
/* Returns the code of the program with these hashes; NULL if the device has not compiled it yet. */
void *lg_program_find(lg_program_list *list, const uint64_t hash[2]);
/* Adds a program. Returns false if out of memory. If two sessions compile the same program at once, the list gets both.
 */
bool lg_program_keep(lg_program_list *list, const uint64_t hash[2], void *code);

/* Computes two independent hashes of 64 bits. */
void lg_hash(const char *text, uint64_t out[2]);
/* Returns the text that the compiler gets: the prelude, the dialect and the text of the launch. The caller frees the
 * text. Returns NULL if out of memory, or if the host refuses to write the prelude. */
char *lg_whole_text(const lg_machine *machine, const lg_launch *launch);

#endif
