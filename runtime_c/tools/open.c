/* open.c - opens the model that the command line names, with its user ops, and fills in the config of its plan. Says
 * what is wrong if the file is a checkpoint or has no such signature. */
#include "open.h"

#include "linnet_ext.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Prints what the plan does not take from the tuning file. */
static void warn(void *context, int32_t level, const char *text) {
    const tool_options *options = context;
    char words[1024];
    if (level != LINNET_LOG_WARNING) return;
    tool_words(text, words, sizeof words);
    fprintf(stderr, "%s: warning: %s\n", options->tool, words);
}

bool tool_user_ops(const char *tool, const char *path, linnet_model_config *config) {
    const linnet_user_op *const *(*list)(int *);
    void *library, *symbol;
    int count;
    if (!path) return true;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: the model calls it */
    symbol = library ? dlsym(library, "linnet_extension_user_ops") : NULL;
    if (!symbol) {
        tool_fail(tool,
                  "--user-ops %s: cannot be loaded: %s; give the path of a library that exports "
                  "linnet_extension_user_ops (linnet_ext.h)",
                  path, dlerror());
        return false;
    }
    memcpy(&list, &symbol, sizeof list);
    config->user_ops = list(&count);
    config->user_op_count = count;
    return true;
}

bool tool_is_checkpoint(const char *tool, const char *path, const linnet_model *model) {
    const char *digest = linnet_model_metadata(model, "checkpoint_of");
    if (digest)
        tool_fail(tool,
                  "%s is a checkpoint, not a model: it has the values of variables, but no graph; give the model with "
                  "digest %s, which it was saved from; linnet-run and linnet-train load this file with --checkpoint",
                  path, digest);
    return digest != NULL;
}

int tool_no_signature(const tool_options *options, const linnet_model *model, const char *name, const char *option) {
    char list[256] = "";
    if (tool_is_checkpoint(options->tool, options->model, model)) return TOOL_FAILED;
    for (int i = 0; i < linnet_model_signature_count(model); i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, " %s", linnet_model_signature_name(model, i));
    }
    return tool_fail(
        options->tool,
        "%s has no signature '%s'; it has:%s; choose one with %s NAME, or add one in Python with graph.signature",
        options->model, name, list[0] ? list : " none", option);
}

int tool_open(const tool_options *options, linnet_model **model, linnet_plan_config *config, int *signature) {
    linnet_error error;
    linnet_model_config how;
    const char *name = options->signature ? options->signature : "infer";
    linnet_model_config_init(&how);
    how.verify = options->verify;
    if (options->tuning) {
        how.log = warn;
        how.log_context = (void *)(uintptr_t)options;
    }
    if (!tool_user_ops(options->tool, options->user_ops, &how)) return TOOL_FAILED;
    if (linnet_model_open(options->model, &how, model, &error)) return tool_fail_record(options->tool, &error);
    *signature = linnet_model_find_signature(*model, name);
    if (*signature < 0) {
        tool_no_signature(options, *model, name, "--signature");
        linnet_model_free(*model);
        *model = NULL;
        return TOOL_FAILED;
    }
    linnet_plan_config_init(config);
    config->signature = name;
    config->threads = (int32_t)options->threads;
    config->isa_max = options->isa_max;
    config->precision = options->precision;
    config->max_bytes = options->memory;
    config->shapes = options->shapes;
    config->shape_count = options->n_shapes;
    config->tuning = options->tuning;
    config->fetches = options->n_fetches ? options->fetches : NULL;
    config->fetch_count = options->n_fetches;
    config->strict_dims = options->strict_dims;
    config->devices = options->n_devices ? options->devices : NULL;
    config->device_count = options->n_devices;
    config->placement = options->n_placement ? options->placement : NULL;
    config->placement_count = options->n_placement;
    config->cluster = options->n_tasks ? options->cluster : NULL;
    config->cluster_count = options->n_tasks;
    return TOOL_OK;
}
