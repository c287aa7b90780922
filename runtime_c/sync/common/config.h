/* config.h - takes the public config structs of callers of any version, checks them and fills in the defaults. */
#ifndef LN_SYNC_CONFIG_H
#define LN_SYNC_CONFIG_H

#include "net/transport.h"

#include "linnet_ext.h"
#include "linnet_sync.h"

/* The size of a struct up to and including `last`, which was its last field in the first version. */
#define LN_SYNC_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))
/* Copy the caller's struct into ours, and ours into the caller's (linnet_ext.h). */
#define LN_SYNC_TAKE(type, last, ours, theirs, error)                                                                  \
    linnet_struct_take(ours, sizeof(type), theirs, LN_SYNC_UP_TO(type, last), #type, error)
#define LN_SYNC_GIVE(type, last, ours, theirs)                                                                         \
    linnet_struct_give(ours, sizeof(type), theirs, LN_SYNC_UP_TO(type, last), #type, NULL)

/* Copy and check a config; `given` may be NULL. A worker's config then points to `link`.
 * Errors: INVALID_ARGUMENT, with the name of the member. */
linnet_status ln_sync_take_link(const linnet_link_config *given, linnet_link_config *config, linnet_error *error);
linnet_status ln_sync_take_worker(const linnet_worker_config *given, linnet_worker_config *config,
                                  linnet_link_config *link, linnet_error *error);
/* Loads keys and certificates if the config names any; otherwise sets *out to NULL. */
linnet_status ln_sync_secure(const linnet_link_config *config, ln_net_security **out, linnet_error *error);

#endif
