/* platform_locks.h - the readers-writer lock. */
#ifndef LN_BASE_PLATFORM_LOCKS_H
#define LN_BASE_PLATFORM_LOCKS_H

#include "base/platform.h"

/* A readers-writer lock. Its contents are opaque and its size is fixed, so that other structs can contain it without
 * headers of the operating system. A writer that waits gets the lock before readers that arrive later. A thread that
 * has the lock must not lock it again, in neither mode. */
typedef struct ln_lock {
    _Alignas(16) unsigned char opaque[144];
} ln_lock;

/* Returns false if the system refuses. The lock must then not be used or destroyed. */
bool ln_lock_init(ln_lock *lock);
/* Nobody may have the lock or wait for it. */
void ln_lock_destroy(ln_lock *lock);
/* Wait for the lock: shared with other readers, or exclusive. */
void ln_lock_shared(ln_lock *lock);
void ln_lock_exclusive(ln_lock *lock);
/* Does the same, but calls `give_up` every few milliseconds while it waits. When `give_up` returns true, this function
 * returns false and the caller does not have the lock. `give_up` NULL: waits without limit. */
bool ln_lock_unless(ln_lock *lock, bool exclusive, bool (*give_up)(void *context), void *context);
/* Releases the lock, which the calling thread has in either mode. */
void ln_unlock(ln_lock *lock);

#endif
