/* config.h - takes public config structs from callers that were compiled with any version of the headers, checks the
 * configs and fills in the defaults. */
#ifndef LN_SYNC_CONFIG_H
#define LN_SYNC_CONFIG_H

#include "net/transport.h"

#include "linnet_ext.h"
#include "linnet_sync.h"

/* The size of a struct up to and including `last`, which was its last field in the first version. */
#define LN_SYNC_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))
/* Copy the caller's struct into ours, and ours into the caller's (linnet_struct_take of linnet_ext.h). Errors:
 * INVALID_ARGUMENT. */
#define LN_SYNC_TAKE(type, last, ours, theirs, error)                                                                  \
    linnet_struct_take(ours, sizeof(type), theirs, LN_SYNC_UP_TO(type, last), #type, error)
#define LN_SYNC_GIVE(type, last, ours, theirs)                                                                         \
    linnet_struct_give(ours, sizeof(type), theirs, LN_SYNC_UP_TO(type, last), #type, NULL)

/* Copy and check a config, and replace 0 by the defaults. `given` may be NULL. ln_sync_take_worker copies the config of
 * the links to *link, and sets config->link to it, so `link` must live as long as `config`. Errors: INVALID_ARGUMENT,
 * with the name of the member. */
linnet_status ln_sync_take_link(const linnet_link_config *given, linnet_link_config *config, linnet_error *error);
linnet_status ln_sync_take_worker(const linnet_worker_config *given, linnet_worker_config *config,
                                  linnet_link_config *link, linnet_error *error);
/* Loads the key or the certificates if the config names any; otherwise sets *out to NULL. The caller frees *out with
 * ln_net_security_free. Errors: those of ln_net_security_create. */
linnet_status ln_sync_secure(const linnet_link_config *config, ln_net_security **out, linnet_error *error);

#endif
