/* library.c - options of devices, the texts of failures, and the list of devices that a library gives
 * (kernels_gpu/common/library.h). */
#define _POSIX_C_SOURCE 200809L
#include "kernels_gpu/common/library.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures ---------------------------------------------------------------------------------------------------- */

void lg_failures_init(lg_failures *failures) { pthread_mutex_init(&failures->lock, NULL); }

int lg_failure(lg_failures *failures, const char *format, ...) {
    enum { MOST = sizeof failures->texts / sizeof *failures->texts };
    char text[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int code = LG_NO_MEMORY;
    pthread_mutex_lock(&failures->lock);
    for (int i = 0; i < failures->count; ++i)
        if (strcmp(failures->texts[i], text) == 0) code = LG_FIRST_TEXT + i;
    if (code == LG_NO_MEMORY) {
        char *kept = failures->count < MOST ? strdup(text) : NULL; /* explain's texts live as long as the device */
        if (kept != NULL) {
            failures->texts[failures->count] = kept;
            code = LG_FIRST_TEXT + failures->count++;
        } else if (failures->count == MOST) {
            code = LG_FIRST_TEXT + MOST - 1;
        }
    }
    pthread_mutex_unlock(&failures->lock);
    return code;
}

const char *lg_failure_text(lg_failures *failures, int code) {
    if (code == LG_BAD_STEP) return "the step is not one that the device has claimed";
    pthread_mutex_lock(&failures->lock); /* other queues may add texts */
    const bool known = code >= LG_FIRST_TEXT && code - LG_FIRST_TEXT < failures->count;
    const char *text = known ? failures->texts[code - LG_FIRST_TEXT] : "there is no host memory";
    pthread_mutex_unlock(&failures->lock);
    return text;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static int memory_of(const lg_backend *backend, const char *name) {
    return strcmp(name, "copied") == 0                                              ? LG_COPIED
           : strcmp(name, "pinned") == 0                                            ? LG_PINNED
           : strcmp(name, "shared") == 0 && (backend->options & LG_HAS_SHARED) != 0 ? LG_SHARED
                                                                                    : LG_MEMORY_DEFAULT;
}

/* Reads one option, whose value is NULL without a '='. False: it is not known, or its value is not. */
static bool read_option(const lg_backend *backend, const char *name, const char *value, lg_options *out) {
    if (value == NULL) return false;
    const bool on = strcmp(value, "on") == 0, off = strcmp(value, "off") == 0;
    if (strcmp(name, "f16") == 0 && (backend->options & LG_HAS_F16) != 0 && (on || off)) {
        out->f16 = on;
    } else if (strcmp(name, "graphs") == 0 && (backend->options & LG_HAS_GRAPHS) != 0 && (on || off)) {
        out->graphs = on;
    } else if (strcmp(name, "place") == 0 && (strcmp(value, "cost") == 0 || strcmp(value, "all") == 0)) {
        out->modelled = value[0] == 'c';
    } else if (strcmp(name, "cache") == 0 && value[0] != 0) {
        out->cached = !off;
        if (!off && !(on && out->folder[0] != 0)) snprintf(out->folder, sizeof out->folder, "%s", value);
    } else if (strcmp(name, "texts") == 0 && (backend->options & LG_HAS_TEXTS) != 0 && value[0] != 0) {
        snprintf(out->texts, sizeof out->texts, "%s", value);
    } else if (strcmp(name, "programs") == 0 && (backend->options & LG_HAS_PROGRAMS) != 0 && value[0] != 0) {
        snprintf(out->programs, sizeof out->programs, "%s", value);
    } else if (strcmp(name, "for") == 0 && (backend->options & LG_HAS_FOR) != 0 && atoi(value) >= 50) {
        out->compute = atoi(value);
    } else if (strcmp(name, "memory") == 0 && memory_of(backend, value) != LG_MEMORY_DEFAULT) {
        out->memory = memory_of(backend, value);
    } else if (strcmp(name, "kernel") == 0) {
        snprintf(out->prefer, sizeof out->prefer, "%s", value);
    } else {
        return false;
    }
    return true;
}

/* Reads "place=cost,cache=DIR". Returns false with the reason in `why`. */
static bool read_options(const lg_backend *backend, const char *text, lg_options *out, char *why, size_t size) {
    *out = (lg_options){.cached = true, .graphs = true};
    if (!lg_cache_folder(out->folder, sizeof out->folder)) out->cached = false;
    while (*text != 0) {
        const size_t length = strcspn(text, ",");
        char item[1100], *value;
        if (length >= sizeof item) {
            snprintf(why, size, "an option of the %s device is longer than %zu characters", backend->name,
                     sizeof item - 1);
            return false;
        }
        memcpy(item, text, length);
        item[length] = 0;
        text += length + (text[length] == ',');
        value = strchr(item, '=');
        if (value != NULL) *value++ = 0;
        if (read_option(backend, item, value, out)) continue;
        snprintf(why, size,
                 "the %s device has no option '%s%s%.200s'; it has %s%splace=all|cost, cache=on|off|FOLDER, "
                 "memory=copied|pinned%s%s%s%s and kernel=NAME",
                 backend->name, item, value != NULL ? "=" : "", value != NULL ? value : "",
                 (backend->options & LG_HAS_F16) != 0 ? "f16=on|off, " : "",
                 (backend->options & LG_HAS_GRAPHS) != 0 ? "graphs=on|off, " : "",
                 (backend->options & LG_HAS_SHARED) != 0 ? "|shared" : "",
                 (backend->options & LG_HAS_TEXTS) != 0 ? ", texts=FOLDER" : "",
                 (backend->options & LG_HAS_PROGRAMS) != 0 ? ", programs=FILE" : "",
                 (backend->options & LG_HAS_FOR) != 0 ? ", for=75|87|90" : "");
        return false;
    }
    return true;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static lg_set *sets;
static pthread_mutex_t sets_lock = PTHREAD_MUTEX_INITIALIZER;

int lg_list_devices(const lg_backend *backend, const linnet_host *host, const char *options, linnet_device_list *list) {
    static _Thread_local char why[1500];
    lg_options read;
    if (!read_options(backend, options, &read, why, sizeof why)) {
        list->missing = why;
        return 1;
    }
    pthread_mutex_lock(&sets_lock);
    lg_set *found = sets;
    while (found != NULL && strcmp(found->options, options) != 0) found = found->next;
    if (found == NULL && (found = calloc(1, sizeof *found)) != NULL) {
        found->options = strdup(options);
        if (found->options == NULL) { /* not kept: the next call tries again */
            free(found);
            found = NULL;
        } else {
            backend->find(host, &read, found);
            found->next = sets, sets = found;
        }
    }
    pthread_mutex_unlock(&sets_lock);
    if (found == NULL) {
        list->missing = "there is no host memory";
        return 1;
    }
    list->count = found->count;
    list->devices = found->devices;
    list->missing = found->missing;
    return 0;
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

double lg_cost(const lg_machine *machine, const lg_options *options, const linnet_step *step) {
    double ns = -1;
    lg_step *s = malloc(sizeof *s);
    if (s == NULL) return -1;
    if (!lg_step_open(s, machine, step) || lg_choose(s, &ns) == NULL) ns = -1;
    free(s);
    if (ns < 0) return -1;
    return options->modelled ? ns : 1e-6 * ns; /* a device that was asked for gets all that it can run */
}
