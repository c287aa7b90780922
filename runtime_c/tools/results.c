/* results.c - prints outputs as the model's metadata describes them: classes with labels, boxes, text.
 * linnet.preprocess writes the metadata entries: io:SIGNATURE:OUTPUT and labels:SIGNATURE:OUTPUT
 * (docs/preprocess.md). */
#include "results.h"

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

static long long count(const linnet_tensor_info *info) {
    long long n = 1;
    for (int i = 0; i < info->rank; i++) n *= info->shape[i];
    return n;
}

static void print_class(const char *labels, long long index) {
    int length;
    const char *text = label(labels, index, &length);
    if (length)
        printf("%.*s", length, text);
    else
        printf("class %lld", index);
}

static void print_classes(const results *r, const linnet_tensor_info *info, const void *data, const char *about) {
    const char *labels = results_about(r->model, "labels", r->signature, info->name);
    linnet_tensor_info other = {.struct_size = sizeof other};
    const void *scores = NULL;
    if (info->dtype != LINNET_I64 || !find(r, about, "scores", LINNET_F32, &other, &scores) ||
        count(&other) != count(info))
        return;
    long long row = info->rank ? info->shape[info->rank - 1] : 1;
    for (long long i = 0; i < count(info); i++) {
        if (i && i % row == 0) putchar('\n');
        printf("  %7.4f  ", (double)((const float *)scores)[i]);
        print_class(labels, ((const int64_t *)data)[i]);
        putchar('\n');
    }
}

static void print_boxes(const results *r, const linnet_tensor_info *info, const void *data, const char *about) {
    linnet_tensor_info score_info = {.struct_size = sizeof score_info}, class_info = score_info;
    const void *scores = NULL, *classes = NULL;
    char name[256];
    const char *labels = NULL;
    long long n = count(info) / 4;
    if (info->dtype != LINNET_F32 || info->rank != 2 || info->shape[1] != 4) return;
    if (find(r, about, "scores", LINNET_F32, &score_info, &scores) && count(&score_info) != n) scores = NULL;
    if (find(r, about, "classes", LINNET_I64, &class_info, &classes) && count(&class_info) != n) classes = NULL;
    if (classes && results_word(about, "classes", name, sizeof name))
        labels = results_about(r->model, "labels", r->signature, name);
    if (n == 0) puts("  nothing found");
    for (long long i = 0; i < n; i++) {
        const float *box = (const float *)data + 4 * i;
        printf("  ");
        if (scores) printf("%7.4f", (double)((const float *)scores)[i]);
        printf("  x %.1f to %.1f, y %.1f to %.1f", (double)box[0], (double)box[2], (double)box[1], (double)box[3]);
        if (classes) {
            printf("  ");
            print_class(labels, ((const int64_t *)classes)[i]);
        }
        putchar('\n');
    }
}

static void print_text(const results *r, const linnet_tensor_info *info, const void *data) {
    const char *labels = results_about(r->model, "labels", r->signature, info->name);
    if (info->dtype != LINNET_I64 || !labels) return;
    printf("  ");
    for (long long i = 0; i < count(info); i++) {
        int length;
        const char *text = label(labels, ((const int64_t *)data)[i], &length);
        printf("%.*s", length, text);
    }
    putchar('\n');
}

void results_print(const results *r, const linnet_tensor_info *info, const void *data) {
    const char *about = results_about(r->model, "io", r->signature, info->name);
    if (results_is(about, "classes")) print_classes(r, info, data, about);
    if (results_is(about, "boxes")) print_boxes(r, info, data, about);
    if (results_is(about, "text")) print_text(r, info, data);
}
