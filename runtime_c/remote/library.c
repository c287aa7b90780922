/* library.c - liblinnet_remote: finds the device that a name such as remote:pi1:7700,key=FILE stands for. */
#define _POSIX_C_SOURCE 200809L
#include "net/transport_security.h"
#include "remote/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { LEASE_MS = 10000 };

typedef struct found {
    struct found *next;
    const linnet_device *device;
    char options[]; /* by which it was asked for */
} found;

static found *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The words of options, and where each is read. */
typedef struct settings {
    char text[1024], *address, *key, *identity, *certificate, *private_key, *authority, *server_name, *lease, *keep;
} settings;

static const char *read_option(settings *s, char *word) {
    static const struct {
        const char *name;
        size_t field;
    } names[] = {
        {"at", offsetof(settings, address)},
        {"key", offsetof(settings, key)},
        {"identity", offsetof(settings, identity)},
        {"certificate", offsetof(settings, certificate)},
        {"private_key", offsetof(settings, private_key)},
        {"authority", offsetof(settings, authority)},
        {"server_name", offsetof(settings, server_name)},
        {"lease", offsetof(settings, lease)},
        {"keep", offsetof(settings, keep)},
    };
    char *equals = strchr(word, '=');
    if (equals != NULL) *equals = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && equals != NULL; i++)
        if (strcmp(word, names[i].name) == 0) {
            memcpy((char *)s + names[i].field, &(char *){equals + 1}, sizeof(char *));
            return NULL;
        }
    return word;
}

/* The option `lease` in milliseconds; 0: it is not valid. */
static int read_lease(const char *text) {
    char *end;
    const double seconds = strtod(text, &end);
    return end != text && *end == 0 && seconds >= 0.1 && seconds <= 86400 ? (int)(1000 * seconds + 0.5) : 0;
}

/* Returns NULL, or why the options are refused. */
static const char *read_options(settings *s, const char *options) {
    static _Thread_local char why[400];
    if (strlen(options) >= sizeof s->text) return "the options are too long";
    strcpy(s->text, options);
    for (char *word = s->text, *end; word != NULL && *word != 0; word = end) {
        end = strchr(word, ',');
        if (end != NULL) *end++ = 0;
        const char *bad = read_option(s, word);
        if (bad == NULL) continue;
        snprintf(why, sizeof why,
                 "'%.40s' is not an option of a host; the options are key, identity, certificate, private_key, "
                 "authority, server_name, lease and keep, each with = and a value",
                 bad);
        return why;
    }
    if (s->lease != NULL && read_lease(s->lease) == 0) return "lease is a number of seconds from 0.1 to 86400";
    if (s->keep != NULL && strcmp(s->keep, "on") != 0 && strcmp(s->keep, "off") != 0) return "keep is on or off";
    return s->address != NULL && *s->address != 0 ? NULL : "give the address of a host, such as remote:pi1:7700";
}

static bool fill_token(unsigned char *token) {
    FILE *file = fopen("/dev/urandom", "rb");
    const bool filled = file != NULL && fread(token, 1, LN_REMOTE_TOKEN, file) == LN_REMOTE_TOKEN;
    if (file != NULL) fclose(file);
    return filled;
}

static const linnet_device *connect_to(const linnet_host *host, const settings *s, linnet_error *error) {
    ln_remote_place place = {.lease_ms = s->lease != NULL ? read_lease(s->lease) : LEASE_MS,
                             .keep = s->keep != NULL && strcmp(s->keep, "on") == 0};
    const ln_net_security_config config = {
        .key_file = s->key,
        .identity = s->identity,
        .certificate = s->certificate,
        .private_key = s->private_key,
        .authority = s->authority,
        .server_name = s->server_name,
    };
    snprintf(place.address, sizeof place.address, "%s", s->address);
    if (!fill_token(place.token)) {
        linnet_error_begin(error, LINNET_READ_FAILED, "cannot read random numbers from /dev/urandom");
        return NULL;
    }
    if ((s->key != NULL || s->certificate != NULL) && ln_net_security_create(&config, &place.security, error))
        return NULL;
    const linnet_device *device = ln_remote_device_new(host, &place, error);
    if (device == NULL) ln_net_security_free(place.security);
    return device;
}

EXPORT int linnet_extension_devices(const linnet_host *host, const char *options, linnet_device_list *list) {
    static _Thread_local char why[1024];
    settings s = {0};
    linnet_error error = {0};
    list->missing = read_options(&s, options);
    if (list->missing != NULL) return 1;
    pthread_mutex_lock(&lock);
    found *f = all;
    while (f != NULL && strcmp(f->options, options) != 0) f = f->next;
    if (f == NULL && (f = malloc(sizeof *f + strlen(options) + 1)) != NULL) {
        strcpy(f->options, options);
        f->device = connect_to(host, &s, &error);
        if (f->device != NULL) {
            f->next = all, all = f;
        } else { /* not kept: the next call tries again */
            free(f);
            f = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    if (f != NULL) {
        list->count = 1;
        list->devices = &f->device;
        return 0;
    }
    linnet_error_format(&error, why, sizeof why);
    list->missing = why;
    return 0;
}
