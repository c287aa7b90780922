/* packed_variables.h - packed copies of variables, which the sessions of a store share. */
#ifndef LN_PACKED_VARIABLES_H
#define LN_PACKED_VARIABLES_H

#include "plan/session_layout.h"

/* Allocates the packed copies of variables that the instance and its bodies need, or shares those of other
   sessions. *bytes becomes the number of bytes that it allocated. Errors: OUT_OF_MEMORY. */
linnet_status ln_packed_variables_take(linnet_session *session, ln_instance *instance, size_t *bytes,
                                       linnet_error *error);
/* Gives up the copies of the instance and its bodies. Returns the number of bytes that were freed. */
size_t ln_packed_variables_release(linnet_session *session, ln_instance *instance);
/* Packs the variables again that have changed since their copies were made. Called in a run, before the instance's
   steps. */
void ln_packed_variables_refresh(linnet_session *session, ln_instance *instance);
void *ln_packed_variable_content(const ln_instance *instance, const ln_step *step);

#endif
