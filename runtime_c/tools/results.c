/* results.c - prints outputs as the model's metadata describes them, as text or JSON: classes with labels, boxes, text.
 * linnet.preprocess writes the metadata entries: io:SIGNATURE:OUTPUT and labels:SIGNATURE:OUTPUT
 * (docs/preprocess.md). */
#include "results.h"

#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *results_about(const linnet_model *model, const char *prefix, const char *signature, const char *name) {
    char key[512];
    if ((size_t)snprintf(key, sizeof key, "%s:%s:%s", prefix, signature, name) >= sizeof key) return NULL;
    return linnet_model_metadata(model, key);
}

bool results_is(const char *about, const char *kind) {
    size_t n = strlen(kind);
    return about && !strncmp(about, kind, n) && (about[n] == 0 || about[n] == ' ');
}

bool results_word(const char *about, const char *key, char *value, size_t size) {
    size_t n = strlen(key);
    for (const char *at = about ? strchr(about, ' ') : NULL; at; at = strchr(at, ' ')) {
        at++;
        if (strncmp(at, key, n) != 0 || at[n] != '=') continue;
        size_t length = strcspn(at + n + 1, " ");
        if (length >= size) return false;
        memcpy(value, at + n + 1, length);
        value[length] = 0;
        return true;
    }
    return false;
}

/* Returns line `i` of the labels, or "". */
static const char *label(const char *labels, long long i, int *length) {
    const char *at = labels;
    *length = 0;
    for (; at && i > 0; i--) at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    if (!at || i < 0) return "";
    *length = (int)strcspn(at, "\n");
    return at;
}

static bool find(const results *r, const char *about, const char *key, int dtype, linnet_tensor_info *info,
                 const void **data) {
    char name[256];
    if (!results_word(about, key, name, sizeof name)) return false;
    for (int i = 0; i < linnet_plan_output_count(r->plan); i++)
        if (!linnet_session_get_output(r->session, i, info) && !strcmp(info->name, name) && info->dtype == dtype) {
            *data = linnet_session_output(r->session, i);
            return true;
        }
    return false;
}

/* The label of a class. Without one, the label is "class N", in `room`. */
static const char *class_label(const char *labels, long long index, char *room, size_t size, int *length) {
    const char *text = label(labels, index, length);
    if (*length) return text;
    *length = snprintf(room, size, "class %lld", index);
    return room;
}

static void put_class(const char *labels, long long index, bool json) {
    char room[32];
    int length;
    const char *text = class_label(labels, index, room, sizeof room, &length);
    if (!json) {
        printf("%.*s", length, text);
        return;
    }
    printf("\"label\": ");
    tool_json_text(text, (size_t)length);
}

static void put_classes(const results *r, const linnet_tensor_info *info, const void *data, const char *about,
                        bool json) {
    const char *labels = results_about(r->model, "labels", r->signature, info->name);
    linnet_tensor_info other = {.struct_size = sizeof other};
    const void *scores = NULL;
    if (info->dtype != LINNET_I64 || !find(r, about, "scores", LINNET_F32, &other, &scores) ||
        tool_count(&other) != tool_count(info))
        return;
    long long row = info->rank ? info->shape[info->rank - 1] : 1;
    for (long long i = 0; i < tool_count(info); i++) {
        const double score = (double)((const float *)scores)[i];
        if (json) {
            printf("%s{\"score\": ", i ? ", " : "");
            tool_json_number(score, 9);
            printf(", ");
        } else {
            if (i && i % row == 0) putchar('\n');
            printf("  %7.4f  ", score);
        }
        put_class(labels, ((const int64_t *)data)[i], json);
        putchar(json ? '}' : '\n');
    }
}

static void put_boxes(const results *r, const linnet_tensor_info *info, const void *data, const char *about,
                      bool json) {
    linnet_tensor_info score_info = {.struct_size = sizeof score_info}, class_info = score_info;
    const void *scores = NULL, *classes = NULL;
    static const char *const sides[] = {"x0", "y0", "x1", "y1"};
    char name[256];
    const char *labels = NULL;
    long long n = tool_count(info) / 4;
    if (info->dtype != LINNET_F32 || info->rank != 2 || info->shape[1] != 4) return;
    if (find(r, about, "scores", LINNET_F32, &score_info, &scores) && tool_count(&score_info) != n) scores = NULL;
    if (find(r, about, "classes", LINNET_I64, &class_info, &classes) && tool_count(&class_info) != n) classes = NULL;
    if (classes && results_word(about, "classes", name, sizeof name))
        labels = results_about(r->model, "labels", r->signature, name);
    if (n == 0 && !json) puts("  nothing found");
    for (long long i = 0; i < n; i++) {
        const float *box = (const float *)data + 4 * i;
        const double score = scores ? (double)((const float *)scores)[i] : 0;
        fputs(!json ? "  " : i ? ", {" : "{", stdout);
        if (scores && json) {
            printf("\"score\": ");
            tool_json_number(score, 9);
            printf(", ");
        } else if (scores) {
            printf("%7.4f", score);
        }
        for (int k = 0; k < 4 && json; k++) {
            printf("%s\"%s\": ", k ? ", " : "", sides[k]);
            tool_json_number((double)box[k], 9);
        }
        if (!json)
            printf("  x %.1f to %.1f, y %.1f to %.1f", (double)box[0], (double)box[2], (double)box[1], (double)box[3]);
        if (classes) {
            fputs(json ? ", " : "  ", stdout);
            put_class(labels, ((const int64_t *)classes)[i], json);
        }
        putchar(json ? '}' : '\n');
    }
}

static void put_text(const results *r, const linnet_tensor_info *info, const void *data, bool json) {
    const char *labels = results_about(r->model, "labels", r->signature, info->name);
    if (info->dtype != LINNET_I64 || !labels) return;
    fputs(json ? "{\"text\": \"" : "  ", stdout);
    for (long long i = 0; i < tool_count(info); i++) {
        int length;
        const char *text = label(labels, ((const int64_t *)data)[i], &length);
        if (json)
            tool_json_characters(text, (size_t)length);
        else
            printf("%.*s", length, text);
    }
    fputs(json ? "\"}" : "\n", stdout);
}

/* Returns whether the metadata describes the output as something that has rows. */
static bool put_rows(const results *r, const linnet_tensor_info *info, const void *data, bool json) {
    const char *about = results_about(r->model, "io", r->signature, info->name);
    const bool classes = results_is(about, "classes"), boxes = results_is(about, "boxes");
    if (!classes && !boxes && !results_is(about, "text")) return false;
    if (json) {
        tool_json_text(info->name, strlen(info->name));
        printf(": [");
    }
    if (classes)
        put_classes(r, info, data, about, json);
    else if (boxes)
        put_boxes(r, info, data, about, json);
    else
        put_text(r, info, data, json);
    if (json) putchar(']');
    return true;
}

bool results_print(const results *r, const linnet_tensor_info *info, const void *data) {
    return put_rows(r, info, data, false);
}

void results_json(const results *r) {
    bool any = false;
    for (int i = 0; i < linnet_plan_output_count(r->plan); i++) {
        linnet_tensor_info info = {.struct_size = sizeof info};
        if (linnet_session_get_output(r->session, i, &info)) continue;
        const char *about = results_about(r->model, "io", r->signature, info.name);
        if (any && (results_is(about, "classes") || results_is(about, "boxes") || results_is(about, "text")))
            printf(", ");
        any |= put_rows(r, &info, linnet_session_output(r->session, i), true);
    }
}
