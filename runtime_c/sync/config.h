/* config.h - checks the public config structs and fills in the defaults. */
#ifndef LN_SYNC_CONFIG_H
#define LN_SYNC_CONFIG_H

#include "sync/transport.h"

#include "linnet_sync.h"

/* Errors: INVALID_ARGUMENT, with the name of the member. */
linnet_status ln_sync_check_link(linnet_link_config *config, linnet_error *error);
linnet_status ln_sync_check_worker(linnet_worker_config *config, linnet_error *error);
/* Loads keys and certificates if the config names any; otherwise sets *out to NULL. */
linnet_status ln_sync_secure(const linnet_link_config *config, ln_sync_security **out, linnet_error *error);

#endif
