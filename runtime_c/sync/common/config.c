/* config.c - takes the configs of workers and links, and checks that their values are in range. */
#include "sync/common/config.h"

#include "net/error.h"
#include "net/frame.h"
#include "net/transport_security.h"

#include <string.h>

#define DEFINE_INIT(name)                                                                                              \
    void name##_init_sized(name *address, size_t size) { linnet_struct_init(address, size); }
DEFINE_INIT(linnet_link_config)
DEFINE_INIT(linnet_link_info)
DEFINE_INIT(linnet_worker_info)
DEFINE_INIT(linnet_ring_config)

void linnet_server_config_init_sized(linnet_server_config *address, size_t size) {
    linnet_struct_init(address, size);
    if (address != NULL && size >= LN_SYNC_UP_TO(linnet_server_config, repair)) address->staleness = -1;
}

void linnet_worker_config_init_sized(linnet_worker_config *address, size_t size) {
    linnet_struct_init(address, size);
    if (address != NULL && size >= LN_SYNC_UP_TO(linnet_worker_config, name)) address->worker = -1;
}

static linnet_status wrong(const char *what, const char *expected, long long got, linnet_error *error) {
    ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "a field of the config is out of range");
    ln_sync_at(error, what);
    ln_sync_expected(error, "%s", expected);
    ln_sync_got(error, "%lld", got);
    return ln_sync_hint(
        error,
        "initialize the config with linnet_worker_config_init or linnet_link_config_init, then change what you need");
}

linnet_status ln_sync_take_link(const linnet_link_config *given, linnet_link_config *config, linnet_error *error) {
    linnet_link_config_init(config);
    if (given && LN_SYNC_TAKE(linnet_link_config, server_name, config, given, error)) return LINNET_INVALID_ARGUMENT;
    if (config->chunk == 0) config->chunk = LN_NET_CHUNK;
    if (config->chunk < LN_NET_CHUNK_MIN || config->chunk > LN_NET_CHUNK_MAX)
        return wrong("chunk", "4096 to 4194304 bytes, or 0", config->chunk, error);
    if (config->heartbeat_ms < 0)
        return wrong("heartbeat_ms", "a time in milliseconds, or 0", config->heartbeat_ms, error);
    if (config->lease_ms < 0) return wrong("lease_ms", "a time in milliseconds, or 0", config->lease_ms, error);
    return LINNET_OK;
}

linnet_status ln_sync_take_worker(const linnet_worker_config *given, linnet_worker_config *config,
                                  linnet_link_config *link, linnet_error *error) {
    linnet_worker_config_init(config);
    if (given && LN_SYNC_TAKE(linnet_worker_config, name, config, given, error)) return LINNET_INVALID_ARGUMENT;
    if (config->worker < -1) return wrong("worker", "a number from 0, or -1", config->worker, error);
    if (config->group < 0) return wrong("group", "0 or more", config->group, error);
    if (config->compression < LINNET_SYNC_PLAIN || config->compression > LINNET_SYNC_ONE_BIT)
        return wrong("compression", "a value of linnet_sync_compression", config->compression, error);
    if (config->pull_compression < LINNET_SYNC_PLAIN || config->pull_compression > LINNET_SYNC_BF16)
        return wrong("pull_compression", "LINNET_SYNC_PLAIN, LINNET_SYNC_F16 or LINNET_SYNC_BF16",
                     config->pull_compression, error);
    if (config->writer) config->read_only = 1; /* it is no member, and may put values */
    if (config->fraction == 0) config->fraction = 0.01;
    if (!(config->fraction > 0 && config->fraction <= 1)) {
        wrong("fraction", "a number above 0 and at most 1", 0, error);
        return ln_sync_got(error, "%g", config->fraction);
    }
    if (config->lost_ms == 0) config->lost_ms = 60000;
    if (config->lost_ms < 0) return wrong("lost_ms", "a time in milliseconds, or 0", config->lost_ms, error);
    if (config->timeout_ms < 0) return wrong("timeout_ms", "a time in milliseconds, or 0", config->timeout_ms, error);
    if (config->name && strlen(config->name) > 15) {
        wrong("name", "at most 15 bytes", 0, error);
        return ln_sync_got(error, "'%.60s'", config->name);
    }
    const linnet_status status = ln_sync_take_link(config->link, link, error);
    config->link = link;
    return status;
}

linnet_status ln_sync_secure(const linnet_link_config *config, ln_net_security **out, linnet_error *error) {
    const ln_net_security_config security = {.key_file = config->key_file,
                                             .certificate = config->certificate,
                                             .private_key = config->private_key,
                                             .authority = config->authority,
                                             .server_name = config->server_name,
                                             .libssl = config->libssl};
    *out = NULL;
    /* If only some of these members are set, ln_net_security_create reports an error. A connection never falls back to
     * no security. */
    if (!config->key_file && !config->certificate && !config->private_key && !config->authority && !config->server_name)
        return LINNET_OK;
    return ln_net_security_create(&security, out, error);
}
