/* linnet_train.c - trains the `train` signature of a model: options and the loop over steps.
 * Python built the model, with its gradients and its optimizer. This program only runs it. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "clock.h"
#include "help.h"
#include "messages.h"
#include "options.h"
#include "train.h"
#include "train_keep.h"
#include "train_loop.h"
#include "train_setup.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: linnet-train MODEL.lnt --data FILE [--steps N | --epochs N] [options]\n"
                           "Trains the model's signature `train` on arrays, without Python. Writes the\n"
                           "trained variables to --checkpoint, which linnet-run MODEL.lnt --checkpoint FILE\n"
                           "uses.\n"
                           "\n"
                           "  --data FILE.npz       one array per input, with the input's name; the first\n"
                           "                        dimension counts the examples\n"
                           "  --data x=FILE,t=FILE  the same from .npy files or from idx files such as those\n"
                           "                        of MNIST\n"
                           "  --scale NAME=1/255    convert integers of the file to the float type of this\n"
                           "                        input, and multiply them by the factor\n"
                           "  --set NAME=0.01       value of a scalar input\n"
                           "  --batch N             number of examples per step, if the signature leaves it\n"
                           "                        open\n"
                           "  --epochs N, --steps N total length of the training; default one epoch. An\n"
                           "                        epoch has as many steps as there are whole batches\n"
                           "  --seed N              seed for shuffling the examples before each epoch;\n"
                           "                        default 0\n"
                           "  --in-order            use the examples in the order of the file\n"
                           "  --checkpoint FILE     where the variables are saved at the end. If the file\n"
                           "                        exists, training continues from it, and ends with the\n"
                           "                        same result as without the interruption\n"
                           "  --no-checkpoint       train for a trial: save nothing\n"
                           "  --every N             also save every N steps\n"
                           "  --keep N              also keep the last N checkpoints, as FILE.STEP\n"
                           "  --best NAME[,max]     also keep, as FILE.best, the checkpoint with the lowest\n"
                           "                        value of NAME, an output of --eval; max: the highest\n"
                           "  --fresh               start from the beginning, even if the checkpoint exists\n"
                           "  --eval FILE           data like --data for the signature `eval`, which runs\n"
                           "                        after every epoch\n"
                           "  --eval-every N        evaluate every N steps instead\n"
                           "  --memory 8MB          memory limit of the training. To stay within it, values\n"
                           "                        are recomputed instead of kept, or gradients are\n"
                           "                        accumulated over parts of a batch (this needs the\n"
                           "                        signatures `accumulate` and `apply`)\n"
                           "  --log N               print a line every N steps; default 100\n"
                           "  --json                print lines of JSON\n"
                           "  --signature NAME      signature to train; default train\n"
                           "  --eval-signature NAME signature to evaluate; default eval\n"
                           "  --threads N           number of threads; default: the cores of the largest\n"
                           "                        cluster\n"
                           "  --isa-max NAME        newest instruction set that kernels may use: scalar,\n"
                           "                        sse2, avx2, ... or neon, dotprod, ...; default: the best\n"
                           "                        of this machine\n"
                           "  --device NAME         device that runs the steps it can: a name such as\n"
                           "                        opencl or opencl:1,f16=on, or the path of a library;\n"
                           "                        may be repeated, in order of preference\n"
                           "  --placement NODE=DEVICE\n"
                           "                        place nodes by name, whatever they cost there;\n"
                           "                        * stands for any characters; may be repeated:\n"
                           "                        the first name that fits a node counts\n"
                           "  --task TASK=DEVICE    device of a task that the model's device scopes name:\n"
                           "                        /job:worker/task:0=remote:pi1:7700; cpu is this\n"
                           "                        machine; may be repeated\n"
                           "  --user-ops FILE       shared library of the user ops that the model names\n"
                           "  --version             print the version\n"
                           "  --help                print this text\n"
                           "\n"
                           "Exit status: 0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal\n"
                           "(after saving the checkpoint).\n";

static volatile sig_atomic_t stopped;

static void stop(int number) { stopped = number; }

/* Keeps NAME=NUMBER until the inputs are known. */
static int take_named(train_options *o, const char *option, char *text, char **list, int *count) {
    if (!strchr(text, '=') || text[0] == '=' || *count == TOOL_MOST_OPTIONS)
        return tool_usage(o->common.tool, "%s: expected NAME=NUMBER, got '%s'", option, text);
    list[(*count)++] = text;
    return TOOL_OK;
}

typedef struct named {
    char *sets[TOOL_MOST_OPTIONS], *scales[TOOL_MOST_OPTIONS];
    int n_sets, n_scales;
} named;

static int parse_one(train_options *o, named *n, int argc, char **argv, int *i) {
    const char *tool = o->common.tool, *option = argv[*i];
    const struct {
        const char *option;
        long *value;
    } numbers[] = {{"--batch", &o->batch}, {"--epochs", &o->epochs}, {"--steps", &o->steps},
                   {"--every", &o->every}, {"--log", &o->log},       {"--eval-every", &o->eval_every},
                   {"--keep", &o->keep}};
    const struct {
        const char *option;
        bool *value;
    } flags[] = {{"--in-order", &o->in_order},
                 {"--fresh", &o->fresh},
                 {"--json", &o->json},
                 {"--no-checkpoint", &o->no_checkpoint}};
    const int taken = tool_option(&o->common, argc, argv, i);
    char *value;
    if (taken >= 0) {
        o->seed_given |= !strcmp(option, "--seed");
        return taken;
    }
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        if (!strcmp(option, flags[k].option)) {
            *flags[k].value = true;
            return TOOL_OK;
        }
    if (!tool_knows(help, option)) return tool_unknown(tool, help, option);
    if (!tool_value(tool, argc, argv, i)) return TOOL_USAGE;
    value = argv[*i];
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (!strcmp(option, numbers[k].option)) {
            o->steps_given |= numbers[k].value == &o->steps;
            return tool_number(tool, option, value, numbers[k].value != &o->steps, 2147483647, numbers[k].value)
                       ? TOOL_OK
                       : TOOL_USAGE;
        }
    if (!strcmp(option, "--data") || !strcmp(option, "--eval")) {
        data_options *d = option[2] == 'd' ? &o->data : &o->eval;
        if (d->n_files == TOOL_MOST_OPTIONS)
            return tool_usage(tool, "%s may be given at most %d times", option, TOOL_MOST_OPTIONS);
        d->files[d->n_files++] = value;
        return TOOL_OK;
    }
    if (!strcmp(option, "--set")) return take_named(o, option, value, n->sets, &n->n_sets);
    if (!strcmp(option, "--scale")) return take_named(o, option, value, n->scales, &n->n_scales);
    if (!strcmp(option, "--best")) {
        char *comma = strrchr(value, ',');
        o->best_is_most = comma && !strcmp(comma, ",max");
        if (o->best_is_most || (comma && !strcmp(comma, ",min"))) *comma = 0;
        o->best = value;
        return TOOL_OK;
    }
    if (!strcmp(option, "--checkpoint"))
        o->checkpoint = value;
    else
        o->eval_signature = value;
    return TOOL_OK;
}

/* Refuses a name that no input has, in any option. */
static int check_names(const trainer *t, const char *option, char *const *list, int count) {
    for (int i = 0; i < count; i++) {
        bool known = false;
        for (int k = 0; k < t->data.n + t->eval_data.n; k++) {
            const char *name =
                k < t->data.n ? t->data.inputs[k].info.name : t->eval_data.inputs[k - t->data.n].info.name;
            known |= !strncmp(list[i], name, strlen(name)) && list[i][strlen(name)] == '=';
        }
        if (!known) return tool_usage(t->tool, "%s %s: the signature has no input of this name", option, list[i]);
    }
    return TOOL_OK;
}

static int parse(train_options *o, named *n, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const int status = parse_one(o, n, argc, argv, &i);
        if (status) return status;
    }
    if (!o->common.model) return tool_usage(o->common.tool, "no model given; give a .lnt file");
    if (!o->data.n_files)
        return tool_usage(o->common.tool, "no data given; give --data FILE.npz or --data x=FILE,t=FILE");
    if (o->epochs && o->steps_given) return tool_usage(o->common.tool, "give --epochs or --steps, not both");
    if (o->keep && !o->checkpoint) return tool_usage(o->common.tool, "--keep needs --checkpoint FILE");
    if (o->best && (!o->checkpoint || !o->eval.n_files))
        return tool_usage(o->common.tool, "--best needs --checkpoint FILE and --eval FILE");
    if (o->every && !o->checkpoint) return tool_usage(o->common.tool, "--every needs --checkpoint FILE");
    if (o->eval_every && !o->eval.n_files) return tool_usage(o->common.tool, "--eval-every needs --eval FILE");
    if (o->common.n_shapes)
        return tool_usage(o->common.tool,
                          "--shape is not for training: shapes come from the data, and the batch size from --batch");
    if (o->common.n_fetches) return tool_usage(o->common.tool, "--fetch is not for training; remove it");
    if (o->common.seed > 2147483647u) return tool_usage(o->common.tool, "--seed must be at most 2147483647");
    if (!o->checkpoint && !o->no_checkpoint)
        return tool_usage(o->common.tool,
                          "the result would not be saved; give --checkpoint FILE, or --no-checkpoint for "
                          "a trial");
    if (o->checkpoint && o->no_checkpoint)
        return tool_usage(o->common.tool, "give --checkpoint or --no-checkpoint, not both");
    o->data.sets = o->eval.sets = n->sets;
    o->data.scales = o->eval.scales = n->scales;
    o->data.n_sets = o->eval.n_sets = n->n_sets;
    o->data.n_scales = o->eval.n_scales = n->n_scales;
    return TOOL_OK;
}

static void say_start(const trainer *t) {
    linnet_plan_info info = {.struct_size = sizeof info};
    linnet_plan_get_info(t->programs[TRAIN].plan, &info);
    if (t->o->json)
        printf("{\"kind\": \"start\", \"examples\": %lld, \"batch\": %lld, \"part\": %lld, \"steps_per_epoch\": %lld, "
               "\"step\": %lld, \"steps\": %lld, \"threads\": %d, \"recomputed\": %d, \"memory\": %zu, \"planned\": "
               "%llu, \"peak\": %zu}\n",
               t->data.rows, t->batch, t->part, t->per_epoch, t->step, t->steps, (int)info.threads,
               (int)info.recomputed, t->memory.live, (unsigned long long)info.total, t->memory.peak);
    else {
        printf("%s: %lld examples, batches of %lld", t->o->common.model, t->data.rows, t->batch);
        if (t->accumulates) printf(" in parts of %lld", t->part);
        printf(", %lld steps per epoch, %d thread%s, %.2f MB", t->per_epoch, (int)info.threads,
               info.threads == 1 ? "" : "s", (double)t->memory.live / 1e6);
        if (info.recomputed) printf(", %d ops recomputed", (int)info.recomputed);
        putchar('\n');
        if (t->step) printf("continues after step %lld of %s\n", t->step, t->o->checkpoint);
    }
    fflush(stdout);
}

static bool is_due(long every, long long step) { return every && step % every == 0; }

static int train(trainer *t) {
    const train_options *o = t->o;
    const long long eval_every = o->eval_every ? o->eval_every : t->per_epoch;
    int status = TOOL_OK;
    long long evaluated = -1;
    t->since = tool_now();
    while (t->step < t->steps && status == TOOL_OK && !stopped) {
        if ((status = trainer_step(t, t->step))) break;
        const long long next = t->step + 1;
        const bool last = next == t->steps || stopped, save = is_due(o->every, next) || last;
        if ((status = trainer_check(t, save && o->checkpoint))) break;
        t->step = next;
        if (is_due(o->log, next) || last) trainer_report(t);
        if (save) status = trainer_save(t);
        if (status == TOOL_OK && next % eval_every == 0) {
            const double start = tool_now();
            status = trainer_eval(t);
            evaluated = next;
            t->since += tool_now() - start; /* the time of an evaluation does not count for the steps */
        }
    }
    if (status == TOOL_OK && !stopped && evaluated != t->step) status = trainer_eval(t);
    if (status == TOOL_OK && stopped) { /* the signal may have come between two steps, where the loop does not check for
                                         * it */
        status = trainer_save(t);
        fprintf(stderr, "%s: stopped by a signal after step %lld%s\n", t->tool, t->step,
                o->checkpoint && t->saved == t->step ? "; the checkpoint holds that step" : "");
        if (status == TOOL_OK) status = 128 + (int)stopped;
    }
    return status;
}

static int run(const train_options *o, const named *n) {
    trainer *t = malloc(sizeof *t);
    int status;
    if (!t) return tool_no_memory(o->common.tool);
    status = trainer_open(t, o);
    if (status == TOOL_OK) status = check_names(t, "--set", n->sets, n->n_sets);
    if (status == TOOL_OK) status = check_names(t, "--scale", n->scales, n->n_scales);
    if (status == TOOL_OK) {
        say_start(t);
        status = train(t);
    }
    trainer_close(t);
    free(t);
    return status == TOOL_OK ? tool_flush(o->common.tool) : status;
}

int main(int argc, char **argv) {
    train_options *o = calloc(1, sizeof *o);
    named *n = calloc(1, sizeof *n);
    struct sigaction action;
    int status;
    if (!o || !n) return tool_no_memory("linnet-train");
    o->common.tool = "linnet-train";
    o->eval_signature = "eval";
    o->log = 100;
    if (tool_answers(o->common.tool, help, argc, argv)) {
        free(o);
        free(n);
        return TOOL_OK;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN; /* a write beyond the file size limit then fails with EFBIG instead of ending the
                                  * process */
    sigaction(SIGXFSZ, &action, NULL);
    status = parse(o, n, argc, argv);
    if (status == TOOL_OK) status = run(o, n);
    free(o);
    free(n);
    return status;
}
