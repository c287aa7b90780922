/* store_holders.h - values of variables that the store does not have: a session's device has computed them, or they are
 * still only in a file. What model/store.h says about the lock holds here too. */
#ifndef LN_STORE_HOLDERS_H
#define LN_STORE_HOLDERS_H

#include "model/store_types.h"

/* Tells whether a run may leave the new value of variable i with a holder. It may not if a caller of linnet_store_data
 * can read the store's memory directly, or if a snapshot follows the variable. Needs the exclusive lock. */
bool ln_store_may_hold(const linnet_store *store, int32_t i);
/* Says that `holder` has the value of variable i from now on. Needs the exclusive lock. */
void ln_store_hold(linnet_store *store, int32_t i, ln_holder *holder);
/* Says that the value of variable i does not exist any more. Until the variable is written, ln_store_fetch fails with
 * DEVICE_FAILED. Needs the exclusive lock. */
void ln_store_lose(linnet_store *store, int32_t i);
/* Says that the device has kept the value of variable i, which `recall` fetches. Needs the exclusive lock. Returns
 * false, and changes nothing, if there is no memory to note that. */
bool ln_store_hold_kept(linnet_store *store, int32_t i, const struct linnet_device *device, ln_store_recall *recall);
/* Returns the holder of variable i; NULL if the store has the value. */
const ln_holder *ln_store_holder(const linnet_store *store, int32_t i);
/* Says that the store has the value of variable i, or is about to get a new value. The caller has the exclusive lock,
 * or is a holder's `fetch`. */
void ln_store_release(linnet_store *store, int32_t i);
/* Adds `change` to the number of sessions that may hold values: 1 for a new session, -1 when a session ends. Needs no
 * lock. */
void ln_store_add_possible_holders(linnet_store *store, int change);
/* Says that a writer with the exclusive lock is about to give variable i a new value. */
void ln_store_overwrite(linnet_store *store, int32_t i);
/* Fetches the value of variable i into the store, or of all variables if i is -1. Values that the holder `own` has stay
 * there; `own` may be NULL. With -1, values that are still only in a file stay there. A shared lock is enough. Errors:
 * DEVICE_FAILED. */
linnet_status ln_store_fetch(linnet_store *store, int32_t i, const ln_holder *own, linnet_error *error);

/* Returns the address of bytes of variable i: in the store, in a file, or in `buffer`, to which their holder has copied
 * them. The value as a whole need not come to the store. A shared lock is enough. `buffer` may be NULL if the variable
 * has no holder, or is unread. NULL: DEVICE_FAILED, OUT_OF_MEMORY (`buffer` is needed). */
const void *ln_store_part(linnet_store *store, int32_t i, uint64_t offset, size_t bytes, void *buffer,
                          linnet_error *error);
/* Returns the value of variable i in a file if nobody has read it since the store was created or the file was loaded;
 * NULL: the value is elsewhere. The address is valid as long as the caller has the lock. */
const void *ln_store_unread(linnet_store *store, int32_t i);
/* Says that the caller does not need the pages of this value soon (ln_store_unread). */
void ln_store_forget(const linnet_store *store, int32_t i, const void *data);
/* Returns a number that changes when a value is left in a file. */
uint64_t ln_store_left(const linnet_store *store);

/* ---- for store.c ------------------------------------------------------------------------------------------ */

/* Copies values from a file in pieces, so that a large variable is never in memory twice. */
void ln_store_take_values(const linnet_model *file, char *to, const char *from, size_t bytes);
/* Says that the value of variable i is in a file: NULL for the store's own model. The caller has the exclusive lock.
 * Returns false, and changes nothing, if there is no memory to note that. */
bool ln_store_leave(linnet_store *store, int32_t i, linnet_model *file, const void *data);
/* Bytes that the store takes to note files and devices that have values. */
size_t ln_store_source_bytes(const linnet_store *store);
/* Tells whether a session may keep values on its devices. */
bool ln_store_may_be_held(linnet_store *store);
/* Prepares the holders of a new store, and leaves the initial values in the model's file. */
void ln_store_holders_init(linnet_store *store);
void ln_store_holders_free(linnet_store *store);
/* Makes sure that the store has the value of variable i and that no holder gets the value later. Does not wait for
 * runs, so it returns false if somebody holds values or may hold them. */
bool ln_store_expose(linnet_store *store, int32_t i);

#endif
