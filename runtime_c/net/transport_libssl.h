/* transport_libssl.h - the functions of OpenSSL's public API (1.1.1 and 3) that TLS needs, loaded at run time with
 * dlopen. The prototypes are declared here, so building does not need OpenSSL. */
#ifndef LN_NET_TRANSPORT_LIBSSL_H
#define LN_NET_TRANSPORT_LIBSSL_H

#include "net/error.h"

#include <stddef.h>

/* The types SSL_psk_use_session_cb_func and SSL_psk_find_session_cb_func of OpenSSL. SSL, EVP_MD and SSL_SESSION are
 * opaque here, so pointers to them are void pointers. */
typedef int ln_net_use_psk(void *ssl, const void *digest, const unsigned char **identity, size_t *size, void **session);
typedef int ln_net_find_psk(void *ssl, const unsigned char *identity, size_t size, void **session);

/* The functions that linnet calls: result, name and parameters as in OpenSSL's headers. */
#define LN_NET_LIBSSL(F)                                                                                               \
    F(unsigned long, OpenSSL_version_num, (void))                                                                      \
    F(void, ERR_clear_error, (void))                                                                                   \
    F(unsigned long, ERR_get_error, (void))                                                                            \
    F(const char *, ERR_reason_error_string, (unsigned long code))                                                     \
    F(const void *, TLS_method, (void))                                                                                \
    F(void *, SSL_CTX_new, (const void *method))                                                                       \
    F(void, SSL_CTX_free, (void *context))                                                                             \
    F(long, SSL_CTX_ctrl, (void *context, int command, long value, void *pointer))                                     \
    F(int, SSL_CTX_set_ciphersuites, (void *context, const char *names))                                               \
    F(void, SSL_set_verify, (void *ssl, int mode, void *callback))                                                     \
    F(int, SSL_CTX_set_num_tickets, (void *context, size_t count))                                                     \
    F(void, SSL_CTX_set_verify, (void *context, int mode, void *callback))                                             \
    F(int, SSL_CTX_load_verify_locations, (void *context, const char *file, const char *folder))                       \
    F(int, SSL_CTX_use_certificate_chain_file, (void *context, const char *file))                                      \
    F(int, SSL_CTX_use_PrivateKey_file, (void *context, const char *file, int type))                                   \
    F(int, SSL_CTX_check_private_key, (const void *context))                                                           \
    F(void, SSL_CTX_set_psk_use_session_callback, (void *context, ln_net_use_psk *callback))                           \
    F(void, SSL_CTX_set_psk_find_session_callback, (void *context, ln_net_find_psk *callback))                         \
    F(void *, SSL_new, (void *context))                                                                                \
    F(void, SSL_free, (void *ssl))                                                                                     \
    F(void, SSL_set_bio, (void *ssl, void *reading, void *writing))                                                    \
    F(int, SSL_set_ex_data, (void *ssl, int index, void *data))                                                        \
    F(void *, SSL_get_ex_data, (const void *ssl, int index))                                                           \
    F(void, SSL_set_accept_state, (void *ssl))                                                                         \
    F(void, SSL_set_connect_state, (void *ssl))                                                                        \
    F(void *, SSL_get0_param, (void *ssl))                                                                             \
    F(int, X509_VERIFY_PARAM_set1_host, (void *parameters, const char *name, size_t size))                             \
    F(int, X509_VERIFY_PARAM_set1_ip_asc, (void *parameters, const char *address))                                     \
    F(void, X509_VERIFY_PARAM_set_hostflags, (void *parameters, unsigned flags))                                       \
    F(int, SSL_do_handshake, (void *ssl))                                                                              \
    F(int, SSL_session_reused, (const void *ssl))                                                                      \
    F(int, SSL_read, (void *ssl, void *data, int size))                                                                \
    F(int, SSL_write, (void *ssl, const void *data, int size))                                                         \
    F(int, SSL_shutdown, (void *ssl))                                                                                  \
    F(int, SSL_get_error, (const void *ssl, int result))                                                               \
    F(long, SSL_get_verify_result, (const void *ssl))                                                                  \
    F(const char *, X509_verify_cert_error_string, (long code))                                                        \
    F(const void *, SSL_CIPHER_find, (void *ssl, const unsigned char *number))                                         \
    F(void *, SSL_SESSION_new, (void))                                                                                 \
    F(void, SSL_SESSION_free, (void *session))                                                                         \
    F(int, SSL_SESSION_set1_master_key, (void *session, const unsigned char *key, size_t size))                        \
    F(int, SSL_SESSION_set_cipher, (void *session, const void *cipher))                                                \
    F(int, SSL_SESSION_set_protocol_version, (void *session, int version))                                             \
    F(int, BIO_new_bio_pair, (void **one, size_t one_size, void **other, size_t other_size))                           \
    F(int, BIO_free, (void *bio))                                                                                      \
    F(int, BIO_nread0, (void *bio, char **data))                                                                       \
    F(int, BIO_nread, (void *bio, char **data, int size))                                                              \
    F(int, BIO_nwrite0, (void *bio, char **data))                                                                      \
    F(int, BIO_nwrite, (void *bio, char **data, int size))

#define LN_NET_POINTER(result, name, parameters) result(*name) parameters;
typedef struct ln_net_libssl {
    void *library; /* from dlopen */
    LN_NET_LIBSSL(LN_NET_POINTER)
} ln_net_libssl;
#undef LN_NET_POINTER

/* The values of OpenSSL's macros, which are the same in 1.1.1 and 3. */
enum {
    LN_SSL_FILETYPE_PEM = 1,
    LN_SSL_VERIFY_NONE = 0,
    LN_SSL_VERIFY_PEER = 1,
    LN_SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2,
    LN_SSL_ERROR_WANT_READ = 2,
    LN_SSL_ERROR_WANT_WRITE = 3,
    LN_SSL_ERROR_ZERO_RETURN = 6,
    LN_SSL_CTRL_MODE = 33,
    LN_SSL_CTRL_SET_SESS_CACHE_MODE = 44,
    LN_SSL_CTRL_SET_MIN_PROTO_VERSION = 123,
    LN_SSL_CTRL_SET_MAX_PROTO_VERSION = 124,
    LN_SSL_MODE_ENABLE_PARTIAL_WRITE = 1,
    LN_SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 2,
    LN_SSL_MODE_RELEASE_BUFFERS = 0x10,
    LN_TLS1_3_VERSION = 0x0304,
    LN_X509_NO_PARTIAL_WILDCARDS = 4,
    LN_X509_HOSTNAME_MISMATCH = 62,
    LN_X509_IP_ADDRESS_MISMATCH = 64
};

/* Loads the library at `path`, or the system's OpenSSL if `path` is NULL, and looks up its functions. The library stays
 * loaded, because OpenSSL cleans up when the process ends. Error: UNSUPPORTED, if the library cannot be
 * loaded, lacks a function, or is older than 1.1.1. */
linnet_status ln_net_libssl_open(const char *path, ln_net_libssl *out, linnet_error *error);
/* Returns the pointer that SSL_set_ex_data(ssl, 0, pointer) attached to `ssl`, for OpenSSL callbacks, which get no
 * other pointer. `caller` is the return address of the callback. The address tells which library has called, if the
 * process has loaded several versions of OpenSSL. */
void *ln_net_libssl_data(const void *ssl, void *caller);

#endif
