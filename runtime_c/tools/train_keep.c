/* train_keep.c - which checkpoints linnet-train writes and keeps: the latest, the last few under their steps, and the
   best by an output of the evaluation. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "train_keep.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tells whether a line says that the step was saved: if it is a reported step, the last one, or the best one. */
static bool is_said(const trainer *t, const char *value) {
    return value || t->step == t->steps || (t->o->log && t->step % t->o->log == 0);
}

static int save(trainer *t, const char *path, const char *value) {
    char numbers[4][32];
    const char *pairs[] = {"step",     numbers[0], "seed",   numbers[1], "batch", numbers[2],
                           "examples", numbers[3], "metric", t->o->best, "value", value};
    linnet_checkpoint_config config;
    linnet_error error;
    snprintf(numbers[0], sizeof numbers[0], "%lld", t->step);
    snprintf(numbers[1], sizeof numbers[1], "%llu", (unsigned long long)t->seed);
    snprintf(numbers[2], sizeof numbers[2], "%lld", t->batch);
    snprintf(numbers[3], sizeof numbers[3], "%lld", t->data.rows);
    linnet_checkpoint_config_init(&config);
    config.metadata = pairs;
    config.metadata_count = value ? 6 : 4;
    if (linnet_store_save(t->store, path, &config, &error)) return tool_fail_record(t->tool, &error);
    if (t->o->json)
        printf("{\"kind\": \"%s\", \"step\": %lld}\n", value ? "best" : "checkpoint", t->step);
    else if (is_said(t, value))
        printf("step %lld  -> %s\n", t->step, path);
    fflush(stdout);
    return TOOL_OK;
}

/* ---- the last few ------------------------------------------------------------------------------------------------ */

/* The step of a file NAME.STEP beside the checkpoint NAME; -1: it is another file. */
static long long step_of(const char *file, const char *name) {
    const size_t length = strlen(name);
    if (strncmp(file, name, length) != 0 || file[length] != '.' || file[length + 1] == 0) return -1;
    const char *digits = file + length + 1;
    if (strspn(digits, "0123456789") != strlen(digits) || strlen(digits) > 18) return -1;
    return atoll(digits);
}

/* Removes all files NAME.STEP but those of the highest steps. */
static void drop_old(const char *folder, const char *path, long keep) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (;;) {
        long long least = -1;
        long count = 0;
        DIR *d = opendir(folder);
        if (!d) return;
        for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
            const long long step = step_of(e->d_name, name);
            if (step < 0) continue;
            ++count;
            if (least < 0 || step < least) least = step;
        }
        closedir(d);
        char old[TOOL_PATH];
        snprintf(old, sizeof old, "%s.%lld", path, least);
        if (count <= keep || unlink(old) != 0) return;
    }
}

static void folder_of(const char *path, char *folder) {
    const char *slash = strrchr(path, '/');
    if (slash == path)
        strcpy(folder, "/");
    else if (slash)
        snprintf(folder, TOOL_PATH, "%.*s", (int)(slash - path), path);
    else
        strcpy(folder, ".");
}

int trainer_save(trainer *t) {
    const char *path = t->o->checkpoint;
    if (!path || t->saved == t->step) return TOOL_OK;
    int status = save(t, path, NULL);
    if (status) return status;
    t->saved = t->step;
    if (!t->o->keep) return TOOL_OK;
    char copy[TOOL_PATH], folder[TOOL_PATH];
    snprintf(copy, sizeof copy, "%s.%lld", path, t->step);
    unlink(copy);
    if (link(path, copy) != 0) status = save(t, copy, NULL); /* the file system has no hard links */
    folder_of(path, folder);
    if (!status) drop_old(folder, path, t->o->keep);
    return status;
}

/* ---- the best ---------------------------------------------------------------------------------------------------- */

int trainer_keep_best(trainer *t, const double *values) {
    const program *p = &t->programs[EVAL];
    char path[TOOL_PATH], text[40];
    if (!t->o->best) return TOOL_OK;
    int i = 0;
    while (i < p->n_scalars && strcmp(p->names[i], t->o->best) != 0) i++;
    if (i == p->n_scalars)
        return tool_usage(t->tool, "--best %s: the signature %s has no scalar output of this name", t->o->best,
                          t->o->eval_signature ? t->o->eval_signature : "eval");
    const double value = t->o->best_is_most ? values[i] : -values[i];
    if (isnan(value) || (t->has_best && value <= t->best)) return TOOL_OK;
    t->has_best = true;
    t->best = value;
    snprintf(text, sizeof text, "%.17g", values[i]);
    snprintf(path, sizeof path, "%s.best", t->o->checkpoint);
    return save(t, path, text);
}

/* ---- before training --------------------------------------------------------------------------------------------- */

/* Takes the value of the best checkpoint of an earlier part of this training. */
static void read_best(trainer *t) {
    char path[TOOL_PATH];
    linnet_model *best = NULL;
    snprintf(path, sizeof path, "%s.best", t->o->checkpoint);
    if (t->o->fresh || access(path, F_OK) != 0 || linnet_model_open(path, NULL, &best, NULL)) return;
    const char *metric = linnet_model_metadata(best, "metric"), *value = linnet_model_metadata(best, "value");
    if (metric && value && strcmp(metric, t->o->best) == 0) {
        t->has_best = true;
        t->best = t->o->best_is_most ? atof(value) : -atof(value);
    }
    linnet_model_free(best);
}

int trainer_check_checkpoint(trainer *t) {
    char folder[TOOL_PATH];
    const char *path = t->o->checkpoint;
    if (!path) return TOOL_OK;
    if (strlen(path) + 32 > TOOL_PATH)
        return tool_fail(t->tool, "the path of --checkpoint is too long; give a shorter one");
    folder_of(path, folder);
    if (access(folder, W_OK | X_OK) != 0 || (access(path, F_OK) == 0 && access(path, W_OK) != 0))
        return tool_fail(t->tool, "cannot write %s; give a path in an existing folder that you may write to", path);
    if (t->o->best) read_best(t);
    return TOOL_OK;
}
