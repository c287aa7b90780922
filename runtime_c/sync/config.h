/* config.h - checks of the public config structs; what is left out becomes its default. */
#ifndef LN_SYNC_CONFIG_H
#define LN_SYNC_CONFIG_H

#include "sync/transport.h"

#include "linnet_sync.h"

/* Errors: INVALID_ARGUMENT, naming the member. */
linnet_status ln_sync_check_link(linnet_link_config *config, linnet_error *error);
linnet_status ln_sync_check_worker(linnet_worker_config *config, linnet_error *error);
/* Keys and certificates, if the config names any; else *out is NULL. */
linnet_status ln_sync_secure(const linnet_link_config *config, ln_sync_security **out, linnet_error *error);

#endif
