/* operand.h - where the operand of a step is, and which inputs and outputs may have memory of the caller. */
#ifndef LN_OPERAND_H
#define LN_OPERAND_H

#include "plan/session_layout.h"

/* NULL stays NULL, because arithmetic on it is undefined even with offset 0. */
static inline void *ln_at(const void *base, uint64_t offset) {
    return base != NULL ? (char *)(uintptr_t)base + offset : NULL;
}
/* Returns port i: the inputs of the program come first, then its outputs. */
static inline const ln_port *ln_port_at(const ln_program *p, int32_t i) {
    return i < p->n_inputs ? &p->inputs[i] : &p->outputs[i - p->n_inputs];
}
/* Returns the pointer to an operand on the host; NULL if it is on a device. */
void *ln_instance_pointer(const linnet_session *session, const ln_instance *instance, const ln_operand *operand);
/* Returns the port of output i of the plan, as ln_port_at numbers them; -1: a later segment computes it. */
int32_t ln_port_of_output(const linnet_session *session, int i);
/* Returns why no memory of the caller can replace that of port i; NULL: it can. */
const char *ln_cannot_bind(const linnet_session *session, int32_t i);

/* For sessions with `binds_all`. ln_expect_bindings checks that memory can be bound to all inputs and outputs
 * (UNSUPPORTED), ln_count_bindings notes how many have none, and ln_check_bindings fails with MISSING_INPUT if one has
 * none. */
linnet_status ln_expect_bindings(linnet_session *session, linnet_error *error);
void ln_count_bindings(linnet_session *session);
linnet_status ln_check_bindings(const linnet_session *session, linnet_error *error);

#endif
