/* options.c - reads the options of a device. */
#include "kernels_gpu/common/options.h"
#include "kernels_gpu/common/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int memory_of(unsigned has, const char *name) {
    return strcmp(name, "copied") == 0                                 ? LG_COPIED
           : strcmp(name, "pinned") == 0                               ? LG_PINNED
           : strcmp(name, "shared") == 0 && (has & LG_HAS_SHARED) != 0 ? LG_SHARED
                                                                       : LG_MEMORY_DEFAULT;
}

/* Reads one option, whose value is NULL without a '='. Returns false if the option or its value is not known. */
static bool read_option(unsigned has, const char *name, const char *value, lg_options *out) {
    if (value == NULL) return false;
    const bool on = strcmp(value, "on") == 0, off = strcmp(value, "off") == 0;
    if (strcmp(name, "f16") == 0 && (has & LG_HAS_F16) != 0 && (on || off)) {
        out->f16 = on;
    } else if (strcmp(name, "graphs") == 0 && (has & LG_HAS_GRAPHS) != 0 && (on || off)) {
        out->graphs = on;
    } else if (strcmp(name, "place") == 0 && (strcmp(value, "cost") == 0 || strcmp(value, "all") == 0)) {
        out->modelled = value[0] == 'c';
    } else if (strcmp(name, "cache") == 0 && value[0] != 0) {
        out->cached = !off;
        if (!off && !(on && out->folder[0] != 0)) snprintf(out->folder, sizeof out->folder, "%s", value);
    } else if (strcmp(name, "texts") == 0 && (has & LG_HAS_TEXTS) != 0 && value[0] != 0) {
        snprintf(out->texts, sizeof out->texts, "%s", value);
    } else if (strcmp(name, "programs") == 0 && (has & LG_HAS_PROGRAMS) != 0 && value[0] != 0) {
        snprintf(out->programs, sizeof out->programs, "%s", value);
    } else if (strcmp(name, "for") == 0 && (has & LG_HAS_FOR) != 0 && atoi(value) >= 50) {
        out->compute = atoi(value);
    } else if (strcmp(name, "memory") == 0 && memory_of(has, value) != LG_MEMORY_DEFAULT) {
        out->memory = memory_of(has, value);
    } else if (strcmp(name, "kernel") == 0) {
        snprintf(out->prefer, sizeof out->prefer, "%s", value);
    } else {
        return false;
    }
    return true;
}

bool lg_read_options(const char *backend, unsigned has, const char *text, lg_options *out, char *why, size_t size) {
    *out = (lg_options){.cached = true, .graphs = true};
    if (!lg_cache_folder(out->folder, sizeof out->folder)) out->cached = false;
    while (*text != 0) {
        const size_t length = strcspn(text, ",");
        char item[1100], *value;
        if (length >= sizeof item) {
            snprintf(why, size, "an option of the %s device is longer than %zu characters", backend, sizeof item - 1);
            return false;
        }
        memcpy(item, text, length);
        item[length] = 0;
        text += length + (text[length] == ',');
        value = strchr(item, '=');
        if (value != NULL) *value++ = 0;
        if (read_option(has, item, value, out)) continue;
        snprintf(why, size,
                 "the %s device has no option '%s%s%.200s'; it has %s%splace=all|cost, cache=on|off|FOLDER, "
                 "memory=copied|pinned%s%s%s%s and kernel=NAME",
                 backend, item, value != NULL ? "=" : "", value != NULL ? value : "",
                 (has & LG_HAS_F16) != 0 ? "f16=on|off, " : "", (has & LG_HAS_GRAPHS) != 0 ? "graphs=on|off, " : "",
                 (has & LG_HAS_SHARED) != 0 ? "|shared" : "", (has & LG_HAS_TEXTS) != 0 ? ", texts=FOLDER" : "",
                 (has & LG_HAS_PROGRAMS) != 0 ? ", programs=FILE" : "",
                 (has & LG_HAS_FOR) != 0 ? ", for=75|87|90" : "");
        return false;
    }
    return true;
}
