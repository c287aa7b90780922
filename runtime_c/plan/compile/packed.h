/* packed.h - packed constants, which the programs of a model share. */
#ifndef LN_PLAN_COMPILE_PACKED_H
#define LN_PLAN_COMPILE_PACKED_H

#include "plan/compile/program.h"

/* Returns the bytes that the call's rearranged constants need. */
uint64_t ln_packed_size(const ln_call *call);
/* Sets `folded` and `content` of a step. Its tensors must already be set. */
void ln_packs_describe(const linnet_model *model, ln_step *step);
/* Returns a step of the program that rearranges the same constants in the same way; NULL if there is none. */
const ln_step *ln_packs_find(const ln_program *program, const ln_step *step);
/* Registers a step of the program so that ln_packs_find finds it. */
void ln_packs_enter(ln_program *program, const ln_step *step);
/* Tells whether an earlier step of this plan, in any of its programs, packs the same constants. */
bool ln_packed_before(const ln_program *root, const ln_step *step);
/* Shares the packed constants that other programs of the model hold. Returns the bytes that packing will still
   allocate, if no session of the store has packed the same variables. */
uint64_t ln_program_share(ln_program *program);
/* Fills `packed`, and frees the folded values that only packing needs. Errors: OUT_OF_MEMORY. */
linnet_status ln_program_pack(ln_program *program, linnet_error *error);
const void *ln_program_packed(const ln_program *program, const ln_step *step); /* NULL: the step needs none */
/* Releases the program's shares of packed constants. Returns the number of bytes that are no longer needed, including
   the bytes of its bodies. */
uint64_t ln_program_unpack(ln_program *program);

#endif
