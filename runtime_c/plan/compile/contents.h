/* contents.h - fills in everything in a program except its steps, and frees the program. */
#ifndef LN_PLAN_COMPILE_CONTENTS_H
#define LN_PLAN_COMPILE_CONTENTS_H

#include "plan/compile/program.h"

void ln_program_free(ln_program *program);
/* Passes that fill in w->result.program. */
linnet_status ln_keep_rest(ln_work *w);
linnet_status ln_take_needs(ln_work *w);
linnet_status ln_collect_ports(ln_work *w);
linnet_status ln_adopt_constants(ln_work *w);
/* Returns the bytes of scratch after the arena: a shared part, then that of each further lane, then one part per
 * thread. */
uint64_t ln_program_scratch(const ln_program *program, int threads);

#endif
