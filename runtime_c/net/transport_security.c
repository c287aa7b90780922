/* transport_security.c - creates the data that connections share for TLS 1.3: a context with a pre-shared key (RFC
 * 8446, 2.2; RFC 9257) or with certificates on both sides. Tickets and 0-RTT are off, so no recorded session can be
 * replayed. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_security.h"

#include "net/error.h"
#include "net/transport_libssl.h"
#include "net/transport_secret.h"
#include "net/transport_tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static linnet_status check(const ln_net_security_config *config, linnet_error *error) {
    bool some = config->certificate || config->private_key || config->authority;
    bool all = config->certificate && config->private_key && config->authority;
    if (config->key_file && some)
        return ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "both a pre-shared key and certificates were given");
    if (!config->key_file && !all) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "neither a key nor a complete set of certificates was given");
        ln_sync_expected(error, "key_file, or certificate, private_key and authority");
        return ln_sync_got(error, "%s%s%s", config->certificate ? "certificate " : "",
                           config->private_key ? "private_key " : "", config->authority ? "authority" : "");
    }
    if (config->identity && (!*config->identity || strlen(config->identity) > 128)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "the identity is empty or too long");
        return ln_sync_expected(error, "1 to 128 bytes");
    }
    if (config->server_name && (config->key_file || !*config->server_name || strlen(config->server_name) > 255)) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT,
                     config->key_file ? "server_name does not work with a key" : "server_name is empty or too long");
        return ln_sync_expected(error, config->key_file ? "server_name only with certificates" : "1 to 255 bytes");
    }
    return LINNET_OK;
}

/* Reports that OpenSSL refused a file. */
static linnet_status refused(ln_net_security *security, const char *what, const char *path, linnet_error *error) {
    unsigned long code = security->ssl.ERR_get_error();
    const char *why = code ? security->ssl.ERR_reason_error_string(code) : NULL;
    ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "%s cannot be used: %s", what, why ? why : "unknown reason");
    ln_sync_at(error, path);
    ln_sync_expected(error, "PEM");
    security->ssl.ERR_clear_error();
    return LINNET_NOT_AUTHENTICATED;
}

static linnet_status use_certificates(ln_net_security *security, const ln_net_security_config *config,
                                      linnet_error *error) {
    const ln_net_libssl *ssl = &security->ssl;
    linnet_status status = ln_net_secret_check(config->private_key, error);
    if (status) return status;
    if (ssl->SSL_CTX_use_certificate_chain_file(security->context, config->certificate) != 1)
        return refused(security, "the certificate", config->certificate, error);
    if (ssl->SSL_CTX_use_PrivateKey_file(security->context, config->private_key, LN_SSL_FILETYPE_PEM) != 1)
        return refused(security, "the private key", config->private_key, error);
    if (ssl->SSL_CTX_check_private_key(security->context) != 1)
        return refused(security, "the private key", config->private_key, error);
    if (ssl->SSL_CTX_load_verify_locations(security->context, config->authority, NULL) != 1)
        return refused(security, "the authority", config->authority, error);
    ssl->SSL_CTX_set_verify(security->context, LN_SSL_VERIFY_PEER | LN_SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    snprintf(security->server_name, sizeof security->server_name, "%s", config->server_name ? config->server_name : "");
    return LINNET_OK;
}

static linnet_status use_key(ln_net_security *security, const ln_net_security_config *config, linnet_error *error) {
    const ln_net_libssl *ssl = &security->ssl;
    linnet_status status = ln_net_secret_read(config->key_file, security->key, &security->key_size, error);
    if (status) return status;
    security->shared_key = true;
    snprintf(security->identity, sizeof security->identity, "%s", config->identity ? config->identity : "linnet");
    ssl->SSL_CTX_set_psk_use_session_callback(security->context, ln_net_tls_use_psk);
    ssl->SSL_CTX_set_psk_find_session_callback(security->context, ln_net_tls_find_psk);
    return LINNET_OK;
}

/* Allows only TLS 1.3 and one cipher suite, without tickets and cache. The suite has the hash that belongs to the key
 * (RFC 8446, 4.2.11). */
static bool set_up(ln_net_security *security) {
    const ln_net_libssl *ssl = &security->ssl;
    enum {
        MODES = LN_SSL_MODE_ENABLE_PARTIAL_WRITE | LN_SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | LN_SSL_MODE_RELEASE_BUFFERS
    };
    security->context = ssl->SSL_CTX_new(ssl->TLS_method());
    if (!security->context) return false;
    ssl->SSL_CTX_ctrl(security->context, LN_SSL_CTRL_MODE, MODES, NULL);
    ssl->SSL_CTX_ctrl(security->context, LN_SSL_CTRL_SET_SESS_CACHE_MODE, 0, NULL);
    return ssl->SSL_CTX_ctrl(security->context, LN_SSL_CTRL_SET_MIN_PROTO_VERSION, LN_TLS1_3_VERSION, NULL) == 1 &&
           ssl->SSL_CTX_ctrl(security->context, LN_SSL_CTRL_SET_MAX_PROTO_VERSION, LN_TLS1_3_VERSION, NULL) == 1 &&
           ssl->SSL_CTX_set_ciphersuites(security->context, "TLS_AES_128_GCM_SHA256") == 1 &&
           ssl->SSL_CTX_set_num_tickets(security->context, 0) == 1;
}

linnet_status ln_net_security_create(const ln_net_security_config *config, ln_net_security **out, linnet_error *error) {
    ln_net_security *security;
    linnet_status status = check(config, error);
    *out = NULL;
    if (status) return status;
    security = calloc(1, sizeof *security);
    if (!security) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for keys");
    status = ln_net_libssl_open(config->libssl, &security->ssl, error);
    if (!status && !set_up(security)) {
        status = ln_sync_fail(error, LINNET_UNSUPPORTED, "this OpenSSL cannot be set up for TLS 1.3");
        ln_sync_hint(error, "was it built without TLS 1.3 or AES-128-GCM? `openssl ciphers -tls1_3` lists its ciphers");
    }
    if (!status)
        status = config->key_file ? use_key(security, config, error) : use_certificates(security, config, error);
    if (status) {
        ln_net_security_free(security);
        return status;
    }
    *out = security;
    return LINNET_OK;
}

void ln_net_security_free(ln_net_security *security) {
    if (!security) return;
    if (security->context) security->ssl.SSL_CTX_free(security->context);
    ln_net_wipe(security->key, sizeof security->key);
    free(security);
}
