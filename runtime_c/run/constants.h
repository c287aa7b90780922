/* constants.h - constants on devices, which the instances of a model share. */
#ifndef LN_CONSTANTS_H
#define LN_CONSTANTS_H

#include "plan/session_layout.h"

/* Returns the allocations of the program that it does not share: those before the constants. */
static inline int32_t ln_own_chunks(const ln_device_memory *m) {
    return m->n_chunks - (m->n_weights - m->first_constant);
}
/* Gives the instance its constants on devices. Constants that other instances of the model have on the same device are
 * shared; all others are written. After an error, the instance has no constants. Errors: DEVICE_FAILED,
 * OUT_OF_MEMORY. */
linnet_status ln_constants_take(linnet_session *session, ln_instance *instance, linnet_error *error);
/* Releases the constants that no other instance has. */
void ln_constants_give(ln_instance *instance);

#endif
