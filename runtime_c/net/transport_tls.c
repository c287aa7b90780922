/* transport_tls.c - TLS 1.3 as a medium on top of another one: the handshake as a stage, then records in and out.
 * OpenSSL works on two buffers (a BIO pair), which are filled from the medium below and flushed into it. */
#define _GNU_SOURCE /* accept4, syscall, SO_PEERCRED */
#include "net/transport_tls.h"

#include "net/error.h"
#include "net/transport_libssl.h"
#include "net/transport_security_state.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECORD = 16 << 10,     /* largest plain text of a record in bytes (RFC 8446, 5.1) */
    SEALED = RECORD + 256, /* largest record in bytes (5.2) */
    BATCH = 8,             /* records that are passed to the medium below at once */
};
static const unsigned char CIPHER[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */

struct ln_net_tls {
    const ln_net_libssl *ssl;
    void *connection; /* SSL */
    void *outside;    /* our end of the BIO pair */
    int write_needs;  /* write_needs of the medium below */
    bool said;        /* some bytes of TLS have been passed to the medium below */
    bool sealed;      /* the handshake is done and nothing has failed, so a closing alert may be sent */
    size_t owed;      /* plaintext bytes whose TLS records are not yet completely passed to the medium below */
};

/* ---- the pre-shared key ------------------------------------------------------------------------------------------ */

/* Creates a TLS 1.3 session with the key as its secret, because OpenSSL represents an external PSK as a session.
 * Creates a new session each time, because OpenSSL writes into it. */
static void *session_of(const ln_net_security *security, void *connection) {
    const ln_net_libssl *ssl = &security->ssl;
    const void *cipher = ssl->SSL_CIPHER_find(connection, CIPHER);
    void *session = cipher ? ssl->SSL_SESSION_new() : NULL;
    if (session && ssl->SSL_SESSION_set1_master_key(session, security->key, security->key_size) == 1 &&
        ssl->SSL_SESSION_set_cipher(session, cipher) == 1 &&
        ssl->SSL_SESSION_set_protocol_version(session, LN_TLS1_3_VERSION) == 1)
        return session;
    if (session) ssl->SSL_SESSION_free(session);
    return NULL;
}

/* Client side. `digest` is ignored, because this side offers only one cipher suite and so knows the hash. */
int ln_net_tls_use_psk(void *connection, const void *digest, const unsigned char **identity, size_t *size,
                       void **session) {
    const ln_net_security *security = ln_net_libssl_data(connection, __builtin_return_address(0));
    (void)digest;
    *session = security ? session_of(security, connection) : NULL;
    if (!*session) return 0;
    *identity = (const unsigned char *)security->identity;
    *size = strlen(security->identity);
    return 1;
}

/* Server side. An unknown identity gets no session, and without a certificate the handshake then fails. */
int ln_net_tls_find_psk(void *connection, const unsigned char *identity, size_t size, void **session) {
    const ln_net_security *security = ln_net_libssl_data(connection, __builtin_return_address(0));
    *session = NULL;
    if (!security) return 0;
    if (size == strlen(security->identity) && memcmp(identity, security->identity, size) == 0)
        *session = session_of(security, connection);
    return 1;
}

/* ---- between the BIO pair and the medium below -------------------------------------------------------------- */

/* Passes encrypted bytes from the BIO pair to the medium below. Returns a positive number when the pair is empty,
 * otherwise the result of the medium's `write`. */
static long flush(ln_net_transport *transport, linnet_error *error) {
    struct ln_net_tls *tls = transport->tls;
    for (;;) {
        char *data;
        ln_net_slice slice;
        int size = tls->ssl->BIO_nread0(tls->outside, &data);
        long put;
        if (size <= 0) return 1;
        slice = (ln_net_slice){data, (size_t)size};
        put = transport->under->write(transport, &slice, 1, error);
        if (put <= 0) return put;
        tls->ssl->BIO_nread(tls->outside, &data, (int)put);
        tls->said = true;
    }
}

/* Passes received bytes from the medium below to the BIO pair. Sets *drained if the medium has no more bytes now.
 * Returns a positive number if OpenSSL can continue, otherwise the result of the medium's `read`. */
static long fill(ln_net_transport *transport, bool *drained, linnet_error *error) {
    struct ln_net_tls *tls = transport->tls;
    char *data;
    int room = tls->ssl->BIO_nwrite0(tls->outside, &data);
    long got;
    if (room <= 0) return 1;
    if (*drained) return LN_NET_WOULD_BLOCK;
    got = transport->under->read(transport, data, (size_t)room, error);
    if (got > 0) tls->ssl->BIO_nwrite(tls->outside, &data, (int)got);
    *drained = transport->under->level && got > 0 && got < room;
    return got;
}

/* Copies the name of the server that a client wants to reach: the configured name, or the host of the address without
 * the scope of an IPv6 address. */
static void name_of_server(const ln_net_transport *transport, char name[256]) {
    const char *said = transport->security->server_name;
    snprintf(name, 256, "%s", *said ? said : *transport->host ? transport->host : "localhost");
    if (strchr(name, ':')) name[strcspn(name, "%")] = 0;
}

static long not_authenticated(ln_net_transport *transport, const char *why, linnet_error *error) {
    ln_sync_fail(error, LINNET_NOT_AUTHENTICATED, "the TLS handshake failed: %s", why);
    ln_sync_at(error, transport->peer);
    ln_sync_hint(error,
                 transport->security->shared_key
                     ? "do both sides have the same key (--key FILE), and does the peer use TLS 1.3?"
                     : "are both certificates valid now, and signed by an authority that the other side trusts?");
    return LN_NET_FAILED;
}

/* Sends OpenSSL's alert to the peer and reports OpenSSL's error. With TLS 1.3, a client may have finished its handshake
 * before the server refuses it. An error before the first received byte therefore counts as a failed handshake. */
static long failed(ln_net_transport *transport, linnet_error *error) {
    struct ln_net_tls *tls = transport->tls;
    unsigned long code = tls->ssl->ERR_get_error();
    const char *reason = code ? tls->ssl->ERR_reason_error_string(code) : NULL;
    long verified = tls->ssl->SSL_get_verify_result(tls->connection);
    bool shaking = !tls->sealed || transport->received == 0;
    char name[256];
    if (flush(transport, NULL) > 0 && !tls->said) {
        /* OpenSSL sends nothing to a peer that does not use TLS. This alert tells a peer without a key what it
         * needs. */
        static const ln_net_slice ALERT = {"\x15\x03\x03\0\2\2\x46", 7}; /* fatal, protocol_version */
        transport->under->write(transport, &ALERT, 1, NULL);
    }
    if (!tls->sealed && !transport->security->shared_key && verified)
        reason = tls->ssl->X509_verify_cert_error_string(verified);
    tls->sealed = false;
    tls->ssl->ERR_clear_error();
    if (!reason) reason = "unknown reason";
    if (shaking) {
        not_authenticated(transport, reason, error);
        if (verified != LN_X509_HOSTNAME_MISMATCH && verified != LN_X509_IP_ADDRESS_MISMATCH) return LN_NET_FAILED;
        name_of_server(transport, name);
        ln_sync_expected(error, "a certificate for %.70s", name);
        ln_sync_hint(error, "is this the right server? Give --server-name NAME if its certificate has another name");
        return LN_NET_FAILED;
    }
    ln_sync_fail(error, LINNET_CONNECTION_LOST, "TLS failed: %s", reason);
    ln_sync_at(error, transport->peer);
    return LN_NET_FAILED;
}

/* ---- the medium -------------------------------------------------------------------------------------------------- */

static long tls_read(ln_net_transport *transport, void *data, size_t size, linnet_error *error) {
    struct ln_net_tls *tls = transport->tls;
    bool drained = false;
    for (;;) {
        long moved;
        int got, why;
        tls->ssl->ERR_clear_error();
        got = tls->ssl->SSL_read(tls->connection, data, (int)(size < (1 << 30) ? size : 1 << 30));
        if (got > 0) return got;
        why = tls->ssl->SSL_get_error(tls->connection, got);
        if (why == LN_SSL_ERROR_ZERO_RETURN) return LN_NET_END_OF_FILE;
        if (why != LN_SSL_ERROR_WANT_READ) return failed(transport, error);
        moved = fill(transport, &drained, error);
        if (moved <= 0) return moved;
    }
}

/* Encrypts the first bytes of the slices into a batch of records. Small slices are gathered into one record. The caller
 * has emptied the BIO pair, so there is room for the batch. Returns the number of plaintext bytes that were taken. */
static long seal(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error) {
    struct ln_net_tls *tls = transport->tls;
    size_t at = 0, taken = 0; /* at: offset in the first remaining slice */
    unsigned char record[RECORD];
    for (int records = 0; records < BATCH && count > 0; records++) {
        const unsigned char *data = (const unsigned char *)slices->data + at;
        size_t size = slices->size - at;
        int put;
        if (size < RECORD && count > 1) {
            size = 0;
            for (int i = 0; i < count && size < RECORD; i++) {
                size_t skip = i == 0 ? at : 0, part = slices[i].size - skip;
                if (part > RECORD - size) part = RECORD - size;
                memcpy(record + size, (const unsigned char *)slices[i].data + skip, part);
                size += part;
            }
            data = record;
        }
        tls->ssl->ERR_clear_error();
        put = tls->ssl->SSL_write(tls->connection, data, (int)(size < RECORD ? size : RECORD));
        if (put <= 0) return failed(transport, error);
        taken += (size_t)put;
        for (at += (size_t)put; count > 0 && at >= slices->size; slices++, count--) at -= slices->size;
    }
    return (long)taken;
}

/* Reports bytes as written when all their records have been passed to the medium below. Until then the caller passes
 * the same bytes again, because a stream never changes bytes that it has begun. They are not encrypted again; only the
 * remaining records are sent. */
static long tls_write(ln_net_transport *transport, const ln_net_slice *slices, int count, linnet_error *error) {
    struct ln_net_tls *tls = transport->tls;
    long moved = 1, written;
    if (!tls->owed) moved = flush(transport, error);
    if (moved > 0 && !tls->owed) {
        written = seal(transport, slices, count, error);
        if (written < 0) return written;
        tls->owed = (size_t)written;
    }
    if (moved > 0) moved = flush(transport, error);
    if (moved <= 0) return moved;
    written = (long)tls->owed;
    tls->owed = 0;
    return written;
}

static void tls_close(ln_net_transport *transport) {
    struct ln_net_tls *tls = transport->tls;
    if (tls->sealed && !tls->owed) {
        tls->ssl->ERR_clear_error();
        tls->ssl->SSL_shutdown(tls->connection);
        flush(transport, NULL);
        tls->ssl->ERR_clear_error();
    }
    if (tls->connection) tls->ssl->SSL_free(tls->connection);
    if (tls->outside) tls->ssl->BIO_free(tls->outside);
    free(tls);
    transport->under->close(transport);
}

const ln_net_medium ln_net_tls_medium = {tls_read, tls_write, tls_close, false, NULL};

/* ---- the handshake ----------------------------------------------------------------------------------------------- */

/* Requires that the peer is the configured server. A worker's certificate is signed by the same authority but does not
 * carry the server's name. OpenSSL itself checks the purposes that a certificate allows. */
static bool expect_server(const ln_net_transport *transport, void *connection) {
    const ln_net_libssl *ssl = &transport->security->ssl;
    char name[256];
    unsigned char bytes[16];
    void *parameters = ssl->SSL_get0_param(connection);
    name_of_server(transport, name);
    if (inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1)
        return ssl->X509_VERIFY_PARAM_set1_ip_asc(parameters, name) == 1;
    ssl->X509_VERIFY_PARAM_set_hostflags(parameters, LN_X509_NO_PARTIAL_WILDCARDS);
    return ssl->X509_VERIFY_PARAM_set1_host(parameters, name, 0) == 1;
}

static bool begin(ln_net_transport *transport) {
    const ln_net_security *security = transport->security;
    const ln_net_libssl *ssl = &security->ssl;
    struct ln_net_tls *tls = calloc(1, sizeof *tls);
    void *inside = NULL;
    if (!tls) return false;
    tls->ssl = ssl;
    tls->write_needs = transport->write_needs;
    transport->tls = tls;
    transport->under = transport->medium;
    transport->medium = &ln_net_tls_medium;
    tls->connection = ssl->SSL_new(security->context);
    if (!tls->connection || ssl->BIO_new_bio_pair(&inside, BATCH * SEALED, &tls->outside, BATCH * SEALED) != 1)
        return false;
    ssl->SSL_set_bio(tls->connection, inside, inside); /* takes ownership of `inside` */
    if (transport->server)
        ssl->SSL_set_accept_state(tls->connection);
    else
        ssl->SSL_set_connect_state(tls->connection);
    /* If the server answers with a certificate instead of the key, the certificate is verified without an authority, so
     * it is refused. */
    if (!transport->server && security->shared_key) ssl->SSL_set_verify(tls->connection, LN_SSL_VERIFY_PEER, NULL);
    return ssl->SSL_set_ex_data(tls->connection, 0, (void *)(uintptr_t)security) == 1 &&
           (security->shared_key || transport->server || expect_server(transport, tls->connection));
}

/* Returns the state of a stage after a medium returned `moved` <= 0. */
static ln_net_flow stopped(ln_net_transport *transport, long moved, int needs, linnet_error *error) {
    transport->stage_needs = needs;
    if (moved == LN_NET_WOULD_BLOCK) return LN_NET_BLOCKED;
    if (moved == LN_NET_END_OF_FILE) {
        ln_sync_fail(error, LINNET_CONNECTION_LOST, "the peer closed the connection during the TLS handshake");
        ln_sync_at(error, transport->peer);
        ln_sync_hint(error, "if this happens again, give both sides the same key (--key FILE)");
    }
    return LN_NET_BROKEN;
}

static ln_net_flow shake(ln_net_transport *transport, linnet_error *error) {
    struct ln_net_tls *tls;
    bool drained = false;
    if (!transport->tls && !begin(transport)) {
        ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a TLS connection");
        return LN_NET_BROKEN;
    }
    for (tls = transport->tls;;) {
        long moved;
        int result, why;
        tls->ssl->ERR_clear_error();
        result = tls->ssl->SSL_do_handshake(tls->connection);
        why = tls->ssl->SSL_get_error(tls->connection, result);
        if (result != 1 && why != LN_SSL_ERROR_WANT_READ && why != LN_SSL_ERROR_WANT_WRITE) {
            failed(transport, error);
            return LN_NET_BROKEN;
        }
        moved = flush(transport, error);
        if (moved <= 0) return stopped(transport, moved, tls->write_needs, error);
        if (result == 1) break;
        if (why == LN_SSL_ERROR_WANT_READ) moved = fill(transport, &drained, error);
        if (moved <= 0) return stopped(transport, moved, LN_NET_READ, error);
    }
    if (transport->security->shared_key && tls->ssl->SSL_session_reused(tls->connection) != 1) {
        not_authenticated(transport, "the peer did not use the key", error);
        return LN_NET_BROKEN;
    }
    tls->sealed = true;
    transport->stage = NULL;
    return LN_NET_FLOWS;
}

void ln_net_stage_security(ln_net_transport *transport) {
    transport->stage = transport->security ? shake : NULL;
    transport->stage_needs = LN_NET_NOW; /* the stage changes this when it blocks */
}
