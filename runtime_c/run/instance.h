/* instance.h - a program bound to memory: resolves its operands, publishes its outputs, and releases its memory. */
#ifndef LN_INSTANCE_H
#define LN_INSTANCE_H

#include "plan/session_layout.h"

/* Places the instance's arrays in `block` (ln_instance_size bytes, zeroed) and resolves every operand. */
linnet_status ln_instance_bind(linnet_session *session, ln_instance *instance, void *block, linnet_error *error);
/* Resolves the operands of the instance and of all later segments again. */
void ln_instance_rebind(linnet_session *session, ln_instance *instance);
/* Frees the device memory of the instance. */
void ln_instance_unbind(linnet_session *session, ln_instance *instance);
/* Makes the outputs of the instance outputs of the session. */
void ln_instance_publish(linnet_session *session, const ln_instance *instance);
/* Forgets the outputs of segments, whose memory a run that fails may have freed. */
void ln_session_no_outputs(linnet_session *session);

/* Frees the memory of a growing result. */
void ln_instance_shrink(linnet_session *session, ln_grown *grown);
/* Allocates the memory that the plan reserves for growing results. Errors: OUT_OF_MEMORY. */
linnet_status ln_instance_reserve(linnet_session *session, ln_instance *instance, linnet_error *error);

#endif
