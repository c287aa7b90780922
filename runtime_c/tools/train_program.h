/* train_program.h - a signature, planned and ready to run. */
#ifndef LN_TOOLS_TRAIN_PROGRAM_H
#define LN_TOOLS_TRAIN_PROGRAM_H

#include "train.h"

void memory_init(memory *m, size_t limit);
/* Counts memory that nothing allocates, to find out whether it would fit. False: it would exceed the limit. */
bool memory_count(memory *m, size_t size);

/* Plans the program for a batch size. `d` may be NULL if the signature has no inputs. */
linnet_status program_plan(program *p, const program_options *o, linnet_model *model, const dataset *d, long long batch,
                           linnet_error *error);
/* Returns the arena size of the session in bytes. Programs that run in turn share one arena. */
size_t program_arena(const program *p);
/* Creates the session. */
linnet_status program_start(program *p, const program_options *o, linnet_store *store, linnet_error *error);
void program_free(program *p);
/* Returns the value of scalar `i` after a run. */
double program_value(const program *p, int i);

#endif
