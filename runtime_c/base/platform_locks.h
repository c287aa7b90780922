/* platform_locks.h - locks. */
#ifndef LN_BASE_PLATFORM_LOCKS_H
#define LN_BASE_PLATFORM_LOCKS_H

#include "base/platform.h"

/* A readers-writer lock, opaque and of fixed size so that it can be embedded in other structs. A waiting writer gets
   the lock before readers that arrive later. A thread must not lock it twice. */
typedef struct ln_lock {
    _Alignas(16) unsigned char opaque[144];
} ln_lock;

bool ln_lock_init(ln_lock *lock);
void ln_lock_destroy(ln_lock *lock);
void ln_lock_shared(ln_lock *lock);
void ln_lock_exclusive(ln_lock *lock);
/* The same, but calls `give_up` every few milliseconds while it waits. Returns false, without the lock, once `give_up`
   returns true. */
bool ln_lock_unless(ln_lock *lock, bool exclusive, bool (*give_up)(void *context), void *context);
void ln_unlock(ln_lock *lock);

#endif
