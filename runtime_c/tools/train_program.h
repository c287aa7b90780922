/* train_program.h - a signature, planned and ready to run. */
#ifndef LN_TOOLS_TRAIN_PROGRAM_H
#define LN_TOOLS_TRAIN_PROGRAM_H

#include "train.h"

/* Prepares m->allocator, which counts what it allocates and refuses more than `limit` bytes (0: no limit). */
void memory_init(memory *m, size_t limit);
/* Counts `size` bytes without allocating them, to find out whether they would fit. Returns false if they would exceed
 * the limit. */
bool memory_count(memory *m, size_t size);

/* Plans the program for a batch size; call program_start before it runs. `d` may be NULL if the signature has no
 * inputs. */
linnet_status program_plan(program *p, const program_options *o, linnet_model *model, const dataset *d, long long batch,
                           linnet_error *error);
/* Returns how many bytes of arena the session needs. Programs that do not run at the same time share one arena. */
size_t program_arena(const program *p);
/* Creates the session of a planned program. */
linnet_status program_start(program *p, const program_options *o, linnet_store *store, linnet_error *error);
void program_free(program *p);
/* Returns the value of scalar output `i` (p->names[i]) after a run. */
double program_value(const program *p, int i);

#endif
