/* test_sync_tls.c - TLS 1.3 over every transport, with a shared key or certificates, and everything that must be
 * refused: other keys, authorities and names, expired certificates, TLS 1.2, plain peers, and a recorded session. The
 * openssl command makes the certificates and is the independent peer. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "sync_ends.h"
#include "net/stream_send.h"
#include "net/transport_connect.h"
#include "net/transport_flow.h"
#include "net/transport_listen.h"
#include "net/transport_security.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64] = "/tmp/ln-sync-XXXXXX";
static const char *libssl; /* the system's library, or the first argument */

/* Returns one of eight static buffers in turn, so that several texts can be used at once. */
static const char *in(const char *name) {
    static char text[8][160];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(text[turn], sizeof text[turn], "%s/%s", folder, name);
    return text[turn];
}

static const char *put(const char *name, const char *content, mode_t mode) {
    const char *path = in(name);
    FILE *file = fopen(path, "w");
    fputs(content, file);
    fclose(file);
    chmod(path, mode);
    return path;
}

static void shell(const char *format, ...) {
    char command[1024];
    va_list arguments;
    int length = snprintf(command, sizeof command, "cd %s && { ", folder);
    va_start(arguments, format);
    length += vsnprintf(command + length, sizeof command - (size_t)length, format, arguments);
    va_end(arguments);
    snprintf(command + length, sizeof command - (size_t)length, "; } > log 2>&1 || { cat log; false; }");
    CHECK_INT(system(command), 0);
}

static ln_net_security *made(ln_net_security_config config) {
    ln_net_security *security;
    linnet_error error;
    char text[512];
    config.libssl = libssl;
    if (ln_net_security_create(&config, &security, &error)) {
        linnet_error_format(&error, text, sizeof text);
        CHECK_TEXT(text, "");
    }
    return security;
}

static const char ONE[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
static const char TWO[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe\n";

/* ---- accepted connections --------------------------------------------------------------------------------------- */

static void exchange(const char *address, const ln_net_security *server, const ln_net_security *client, size_t size,
                     int count, size_t bound) {
    end ends[2];
    linnet_error error;
    unsigned char *data = malloc(size);
    int queued[2] = {0, 0};
    uint64_t seed = size;
    for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(check_random(&seed) >> 20);
    for (int i = 0; i < 2; i++) end_init(&ends[i], size, LN_NET_CHUNK);
    CHECK_INT(ends_connect(ends, address, server, client, &error), LINNET_OK);
    for (int idle = 0; idle < 50;) {
        for (int i = 0; i < 2; i++) {
            ln_net_header header = {.type = LN_SYNC_PUSH};
            ln_net_header beat = {.type = LN_SYNC_HEARTBEAT};
            char payload[32] = {0};
            if (queued[i] < count && queued[i] - (int)ends[i].released < ENDS_PLACES &&
                ln_net_stream_control(ends[i].stream, &beat, payload, sizeof payload))
                queued[i] += ln_net_stream_bulk(ends[i].stream, &header, data, size, 7);
        }
        if (ends[0].messages == (uint64_t)count && ends[1].messages == (uint64_t)count) break;
        idle = ends_step(ends, 2, bound, 100) ? 0 : idle + 1;
        if (end_gone(&ends[0]) || end_gone(&ends[1])) break;
    }
    for (int i = 0; i < 2; i++) {
        char text[512] = "";
        if (ends[i].flow == LN_NET_BROKEN) linnet_error_format(&ends[i].error, text, sizeof text);
        CHECK_TEXT(text, "");
        CHECK_INT(ends[i].messages, count);
        CHECK_INT(ends[i].controls, count);
        CHECK(memcmp(ends[i].inbox, data, size) == 0);
        CHECK(ln_net_transport_open(ends[i].transport));
    }
    /* A normal close is reported as an end, not as an error. */
    ln_net_transport_free(ends[0].transport);
    ends[0].transport = NULL;
    ends[1].flow = LN_NET_FLOWS;
    for (int i = 0; i < 50 && !end_gone(&ends[1]); i++) ends_step(ends + 1, 1, bound, 100);
    CHECK_INT(ends[1].flow, LN_NET_ENDED);
    for (int i = 0; i < 2; i++) end_free(&ends[i]);
    free(data);
}

static void everywhere(const ln_net_security *server, const ln_net_security *client) {
    const char *addresses[] = {"127.0.0.1:0", "[::1]:0", "unix:%s/s", "shm:%s/s"};
    for (int i = 0; i < 4; i++) {
        char address[160];
        snprintf(address, sizeof address, addresses[i], folder);
        exchange(address, server, client, 100, 200, LN_NET_TURN);
        exchange(address, server, client, 3000001, 5, LN_NET_TURN);
        exchange(address, server, client, 50000, 20, 999);
    }
}

/* ---- refused connections ---------------------------------------------------------------------------------------- */

/* Both ends try to connect; neither may deliver a byte. why: text in the first error of either side. */
static void refused(const ln_net_security *server, const ln_net_security *client, const char *why) {
    end ends[2];
    linnet_error error;
    for (int i = 0; i < 2; i++) {
        ln_net_header beat = {.type = LN_SYNC_HEARTBEAT};
        char payload[32] = {0};
        end_init(&ends[i], 0, LN_NET_CHUNK);
        CHECK(ln_net_stream_control(ends[i].stream, &beat, payload, sizeof payload));
    }
    CHECK_INT(ends_connect(ends, "127.0.0.1:0", server, client, &error), LINNET_OK);
    for (int i = 0; i < 100 && !(end_gone(&ends[0]) && end_gone(&ends[1])); i++) {
        ends_step(ends, 2, LN_NET_TURN, 50);
        for (int k = 0; k < 2; k++) /* closes the connection of an end that has failed, as owners do */
            if (end_gone(&ends[k]) && ends[k].transport) {
                if (ends[k].flow == LN_NET_BROKEN && ends[k].error.code == LINNET_PROTOCOL_ERROR)
                    ln_net_transport_send(ends[k].transport, ends[k].stream, LN_NET_TURN, &error);
                ln_net_transport_free(ends[k].transport);
                ends[k].transport = NULL;
            }
    }
    CHECK(end_gone(&ends[0]) && end_gone(&ends[1]));
    CHECK_INT(ends[0].controls + ends[1].controls, 0);
    {
        bool found = false;
        char text[2][512] = {"", ""};
        for (int k = 0; k < 2; k++) {
            if (ends[k].flow == LN_NET_BROKEN) linnet_error_format(&ends[k].error, text[k], sizeof text[k]);
            found |= strcasestr(text[k], why) != NULL;
        }
        if (!found) printf("  client: %s\n  server: %s\n", text[0], text[1]);
        CHECK_TEXT(found ? why : "", why);
        CHECK(ends[1].error.code == LINNET_NOT_AUTHENTICATED || ends[1].error.code == LINNET_PROTOCOL_ERROR ||
              ends[0].error.code == LINNET_NOT_AUTHENTICATED);
    }
    for (int i = 0; i < 2; i++) end_free(&ends[i]);
}

static void keys(void) {
    ln_net_security *one = made((ln_net_security_config){.key_file = put("one", ONE, 0600)});
    ln_net_security *same = made((ln_net_security_config){.key_file = put("same", ONE, 0400)});
    ln_net_security *two = made((ln_net_security_config){.key_file = put("two", TWO, 0600)});
    ln_net_security *other = made((ln_net_security_config){.key_file = in("one"), .identity = "other job"});
    everywhere(one, same);
    refused(one, two, "the TLS handshake failed");
    refused(one, other, "the TLS handshake failed");
    refused(one, NULL, "the peer uses TLS, but no key was given here");
    refused(NULL, one, "the TLS handshake failed");
    ln_net_security_free(one);
    ln_net_security_free(same);
    ln_net_security_free(two);
    ln_net_security_free(other);
}

/* Creates name.pem and name.key, signed by `authority`. names: openssl's subjectAltName; purpose: serverAuth,
 * clientAuth or "" */
static void certificate_for(const char *name, const char *authority, int days, const char *names, const char *purpose) {
    shell("openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout %s.key -out %s.csr -subj "
          "/CN=%s",
          name, name, name);
    shell("echo subjectAltName=%s > %s.ext", names, name);
    if (*purpose) shell("echo extendedKeyUsage=%s >> %s.ext", purpose, name);
    shell("openssl x509 -req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -days %d -extfile %s.ext -out %s.pem",
          name, authority, authority, days, name, name);
    shell("chmod 600 %s.key", name);
}

static void certificate(const char *name, const char *authority, int days) {
    certificate_for(name, authority, days, "DNS:localhost,IP:127.0.0.1,IP:::1", "");
}

static ln_net_security *identified(const char *name, const char *authority, const char *peer) {
    char own[64], key[64], trusted[64];
    snprintf(own, sizeof own, "%s.pem", name);
    snprintf(key, sizeof key, "%s.key", name);
    snprintf(trusted, sizeof trusted, "%s.pem", authority);
    return made((ln_net_security_config){
        .certificate = in(own), .private_key = in(key), .authority = in(trusted), .server_name = peer});
}

/* The purposes in a certificate are enforced: a worker's certificate is not valid for a server, even with the server's
 * name, and a server's certificate is not valid for a worker. */
static void purposes(void) {
    static const char NAMES[] = "DNS:localhost,IP:127.0.0.1";
    ln_net_security *server, *worker, *both;
    certificate_for("forserver", "ca0", 2, NAMES, "serverAuth");
    certificate_for("forclient", "ca0", 2, NAMES, "clientAuth");
    certificate_for("forboth", "ca0", 2, NAMES, "serverAuth,clientAuth");
    server = identified("forserver", "ca0", NULL);
    worker = identified("forclient", "ca0", NULL);
    both = identified("forboth", "ca0", NULL);
    exchange("127.0.0.1:0", server, worker, 100, 3, LN_NET_TURN);
    exchange("127.0.0.1:0", both, both, 100, 3, LN_NET_TURN);
    refused(worker, worker, "purpose");
    refused(server, server, "purpose");
    ln_net_security_free(server);
    ln_net_security_free(worker);
    ln_net_security_free(both);
}

static void certificates(void) {
    ln_net_security *server, *client, *named, *misnamed, *stranger, *expired, *key, *other;
    for (int i = 0; i < 2; i++)
        shell(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca%d.key -out ca%d.pem "
            "-days 2 -subj /CN=ca%d",
            i, i, i);
    certificate("server", "ca0", 2);
    certificate_for("client", "ca0", 2, "DNS:client", "");
    certificate_for("named", "ca0", 2, "DNS:server,DNS:*.lab.example,IP:192.0.2.7", "");
    certificate("stranger", "ca1", 2);
    certificate("expired", "ca0", -1);
    server = identified("server", "ca0", NULL);
    other = identified("named", "ca0", NULL);
    client = identified("client", "ca0", NULL);
    named = identified("client", "ca0", "server");
    misnamed = identified("client", "ca0", "elsewhere");
    stranger = identified("stranger", "ca0", NULL);
    expired = identified("expired", "ca0", NULL);
    key = made((ln_net_security_config){.key_file = in("one")});
    everywhere(server, client);
    /* By default, the expected name is the host of the address. Otherwise it is the given name, which may match a
     * wildcard or be an address. */
    exchange("localhost:0", server, client, 100, 3, LN_NET_TURN);
    exchange(":0", server, client, 100, 3, LN_NET_TURN);
    refused(other, client, "expected a certificate for 127.0.0.1");
    refused(client, client, "IP address mismatch"); /* a worker that claims to be the server */
    refused(server, named, "hostname mismatch");
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"server", "a.lab.example", "192.0.2.7", "SERVER"};
        ln_net_security *same = identified("client", "ca0", names[i]);
        exchange("127.0.0.1:0", other, same, 100, 3, LN_NET_TURN);
        ln_net_security_free(same);
    }
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"serve", "a.b.lab.example", "192.0.2.8", "lab.example"};
        ln_net_security *else_ = identified("client", "ca0", names[i]);
        refused(other, else_, "mismatch");
        ln_net_security_free(else_);
    }
    refused(server, misnamed, "hostname mismatch");
    purposes();
    refused(server, stranger, "unable to get local issuer certificate");
    refused(stranger, client, "unable to get local issuer certificate");
    refused(server, expired, "certificate has expired");
    refused(expired, client, "certificate has expired");
    refused(server, key, "the TLS handshake failed");
    refused(key, client, "the TLS handshake failed");
    refused(server, NULL, "the peer uses TLS");
    ln_net_security_free(server);
    ln_net_security_free(other);
    ln_net_security_free(client);
    ln_net_security_free(named);
    ln_net_security_free(misnamed);
    ln_net_security_free(stranger);
    ln_net_security_free(expired);
    ln_net_security_free(key);
}

/* ---- the openssl command as a peer ------------------------------------------------------------------------------- */

/* Runs openssl s_client with these options against a server with key ONE. Returns the server's error. */
static linnet_error foreign(const char *options, char *output, size_t size) {
    ln_net_security *one = made((ln_net_security_config){.key_file = in("one")});
    ln_net_listener *listener;
    end server;
    linnet_error error;
    char command[512];
    FILE *client;
    size_t got;
    struct pollfd ready;
    CHECK_INT(ln_net_listen("127.0.0.1:0", one, false, &listener, &error), LINNET_OK);
    snprintf(command, sizeof command,
             "{ printf %%0100d 0; sleep 0.5; } | timeout 10 openssl s_client -connect %s %s 2>&1",
             ln_net_listener_address(listener), options);
    client = popen(command, "r");
    end_init(&server, 0, LN_NET_CHUNK);
    ready = (struct pollfd){ln_net_listener_fd(listener), POLLIN, 0};
    poll(&ready, 1, 5000);
    CHECK_INT(ln_net_accept(listener, &server.transport, &error), LINNET_OK);
    for (int i = 0; server.transport && i < 100 && !end_gone(&server); i++) ends_step(&server, 1, LN_NET_TURN, 50);
    CHECK_INT(server.flow, LN_NET_BROKEN);
    error = server.error;
    end_free(&server);
    got = fread(output, 1, size - 1, client);
    output[got] = 0;
    pclose(client);
    ln_net_listener_free(listener);
    ln_net_security_free(one);
    return error;
}

static void openssl_command(void) {
    char output[1 << 14], options[256];
    linnet_error error;
    snprintf(options, sizeof options, "-tls1_3 -psk_identity linnet -psk %.64s", ONE);
    error = foreign(options, output, sizeof output);
    /* The handshake succeeds, but the client does not speak our protocol. */
    CHECK_INT(error.code, LINNET_PROTOCOL_ERROR);
    CHECK(strstr(output, "TLS_AES_128_GCM_SHA256") != NULL);
    snprintf(options, sizeof options, "-tls1_3 -psk_identity linnet -psk %.64s", TWO);
    CHECK_INT(foreign(options, output, sizeof output).code, LINNET_NOT_AUTHENTICATED);
    snprintf(options, sizeof options, "-tls1_2 -psk_identity linnet -psk %.64s", ONE);
    error = foreign(options, output, sizeof output);
    CHECK_INT(error.code, LINNET_NOT_AUTHENTICATED);
    CHECK(strstr(error.what, "unsupported protocol") != NULL);
    CHECK_INT(foreign("-tls1_3", output, sizeof output).code, LINNET_NOT_AUTHENTICATED);
}

/* ---- a recorded session ------------------------------------------------------------------------------------------ */

/* Relays bytes from one end to the other and keeps a copy. */
static void relay(int from, int to, unsigned char *copy, size_t *size, size_t most) {
    ssize_t got = recv(from, copy + *size, most - *size, MSG_DONTWAIT);
    if (got > 0 && send(to, copy + *size, (size_t)got, MSG_NOSIGNAL) == got) *size += (size_t)got;
}

static int dial(const char *address) {
    struct sockaddr_in place = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    place.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(connect(fd, (struct sockaddr *)&place, sizeof place), 0);
    return fd;
}

static void replay(void) {
    ln_net_security *one = made((ln_net_security_config){.key_file = in("one")});
    ln_net_listener *listener, *middle;
    ln_net_transport *caught;
    linnet_error error;
    end ends[2];
    static unsigned char said[1 << 16], answered[1 << 16];
    size_t said_size = 0, answered_size = 0, sent = 0;
    ln_net_header beat = {.type = LN_SYNC_HEARTBEAT};
    char payload[32] = {0}, address[160];
    struct pollfd ready;
    int inward, outward;
    snprintf(address, sizeof address, "unix:%s/middle", folder);
    CHECK_INT(ln_net_listen("127.0.0.1:0", one, false, &listener, &error), LINNET_OK);
    CHECK_INT(ln_net_listen(address, NULL, false, &middle, &error), LINNET_OK);
    end_init(&ends[0], 0, LN_NET_CHUNK);
    end_init(&ends[1], 0, LN_NET_CHUNK);
    CHECK_INT(ln_net_connect(address, one, false, &ends[0].transport, &error), LINNET_OK);
    CHECK_INT(ln_net_accept(middle, &caught, &error), LINNET_OK);
    inward = ln_net_transport_fd(caught);
    outward = dial(ln_net_listener_address(listener));
    ready = (struct pollfd){ln_net_listener_fd(listener), POLLIN, 0};
    poll(&ready, 1, 1000);
    CHECK_INT(ln_net_accept(listener, &ends[1].transport, &error), LINNET_OK);
    CHECK(ln_net_stream_control(ends[0].stream, &beat, payload, sizeof payload));
    for (int i = 0; i < 1000 && ends[1].controls == 0; i++) {
        ends_step(ends, 2, LN_NET_TURN, 2);
        relay(inward, outward, said, &said_size, sizeof said);
        relay(outward, inward, answered, &answered_size, sizeof answered);
    }
    CHECK_INT(ends[1].controls, 1);
    CHECK(said_size > 300);
    close(outward);
    ln_net_transport_free(caught);
    end_free(&ends[0]);
    end_free(&ends[1]);
    /* Replays the same bytes: the server answers with another random number, so the keys do not match. */
    end_init(&ends[1], 0, LN_NET_CHUNK);
    outward = dial(ln_net_listener_address(listener));
    poll(&ready, 1, 1000);
    CHECK_INT(ln_net_accept(listener, &ends[1].transport, &error), LINNET_OK);
    while (sent < said_size) {
        ssize_t put = send(outward, said + sent, said_size - sent, MSG_NOSIGNAL);
        if (put <= 0) break;
        sent += (size_t)put;
    }
    for (int i = 0; i < 100 && !end_gone(&ends[1]); i++) ends_step(ends + 1, 1, LN_NET_TURN, 20);
    CHECK_INT(ends[1].flow, LN_NET_BROKEN);
    CHECK_INT(ends[1].error.code, LINNET_NOT_AUTHENTICATED);
    CHECK_INT(ends[1].controls, 0);
    close(outward);
    end_free(&ends[1]);
    ln_net_listener_free(middle);
    ln_net_listener_free(listener);
    ln_net_security_free(one);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void bad(ln_net_security_config config, int status, const char *text) {
    ln_net_security *security = (void *)1;
    linnet_error error;
    char line[1024];
    if (!config.libssl) config.libssl = libssl;
    CHECK_INT(ln_net_security_create(&config, &security, &error), status);
    CHECK(security == NULL);
    linnet_error_format(&error, line, sizeof line);
    CHECK_TEXT(strstr(line, text) ? text : line, text);
}

static void files(void) {
    char raw[33] = "\x01\x02\x03zyxwvutsrqponmlkjihgfedcba...", longer[700];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    bad((ln_net_security_config){0}, LINNET_INVALID_ARGUMENT, "neither a key nor a complete set of certificates");
    bad((ln_net_security_config){.certificate = "x"}, LINNET_INVALID_ARGUMENT, "got certificate");
    bad((ln_net_security_config){.key_file = "x", .authority = "y"}, LINNET_INVALID_ARGUMENT,
        "both a pre-shared key and certificates were given");
    bad((ln_net_security_config){.key_file = in("nothing")}, LINNET_NOT_FOUND, "linnet sync-key FILE makes one");
    bad((ln_net_security_config){.key_file = folder}, LINNET_NOT_AUTHENTICATED, "not a regular file");
    bad((ln_net_security_config){.key_file = put("open", ONE, 0640)}, LINNET_NOT_AUTHENTICATED, "got mode 640");
    bad((ln_net_security_config){.key_file = put("short", "0011", 0600)}, LINNET_NOT_AUTHENTICATED, "got 4 bytes");
    bad((ln_net_security_config){.key_file = put("long", longer, 0600)}, LINNET_NOT_AUTHENTICATED, "got more than");
    bad((ln_net_security_config){.key_file = in("one"), .identity = ""}, LINNET_INVALID_ARGUMENT, "identity");
    bad((ln_net_security_config){.key_file = in("one"), .server_name = "x"}, LINNET_INVALID_ARGUMENT,
        "server_name does not work with a key");
    bad((ln_net_security_config){.certificate = "a", .private_key = "b", .authority = "c", .server_name = ""},
        LINNET_INVALID_ARGUMENT, "server_name is empty");
    memset(longer, '0', 64); /* keys of zeros: as hex digits, as bytes, and with an odd number of digits */
    longer[64] = 0;
    bad((ln_net_security_config){.key_file = put("zeros", longer, 0600)}, LINNET_NOT_AUTHENTICATED, "all zeros");
    strcat(longer, "0");
    bad((ln_net_security_config){.key_file = put("zeros", longer, 0600)}, LINNET_NOT_AUTHENTICATED, "all zeros");
    shell("head -c 32 /dev/zero > zeros; chmod 600 zeros");
    bad((ln_net_security_config){.key_file = in("zeros")}, LINNET_NOT_AUTHENTICATED, "all zeros");
    bad((ln_net_security_config){.key_file = in("one"), .libssl = in("no.so")}, LINNET_UNSUPPORTED, "install OpenSSL");
    bad((ln_net_security_config){.key_file = in("one"), .libssl = "libm.so.6"}, LINNET_UNSUPPORTED, "has no function");
    bad((ln_net_security_config){.certificate = in("one"), .private_key = in("one"), .authority = in("one")},
        LINNET_NOT_AUTHENTICATED, "the certificate cannot be used");
    bad((ln_net_security_config){.certificate = in("server.pem"),
                                 .private_key = in("client.key"),
                                 .authority = in("ca0.pem")},
        LINNET_NOT_AUTHENTICATED, "the private key cannot be used");
    if (geteuid() == 0) {
        CHECK_INT(chown(put("theirs", ONE, 0600), 12345, 12345), 0);
        bad((ln_net_security_config){.key_file = in("theirs")}, LINNET_NOT_AUTHENTICATED, "got user 12345");
    }
    ln_net_security_free(made((ln_net_security_config){.key_file = put("raw", raw, 0600)}));
    ln_net_security_free(NULL);
}

int main(int count, char **arguments) {
    libssl = count > 1 ? arguments[1] : NULL;
    CHECK(mkdtemp(folder) != NULL);
    keys();
    certificates();
    openssl_command();
    replay();
    files();
    shell("rm -rf %s", folder);
    return check_end("test_sync_tls");
}
