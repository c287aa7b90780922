/* linnet_serve.c - a server of a training job, with no Python: options, signals, and the loop of linnet_server_run.
 * The model comes from linnet.sync.signatures; workers of any kind connect to it. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "common.h"
#include "linnet_sync.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char tool[] = "linnet-serve";
static const char help[] =
    "usage: linnet-serve MODEL.lnt [--listen ADDRESS]... [options]\n"
    "       linnet-serve --status ADDRESS [--key FILE]\n"
    "Owns the parameters of a training job and their optimizer state, and applies what workers push.\n"
    "The model is a file of linnet.sync.signatures or linnet.sync.partition (docs/training.md).\n"
    "\n"
    "  --listen ADDRESS      HOST:PORT, :PORT (loopback), unix:PATH or shm:PATH (processes of one machine);\n"
    "                        port 0 lets the system choose; default :0. Each is printed as `listening ADDRESS`\n"
    "  --workers N           workers that a step needs; default 1\n"
    "  --backup N            of these, how many a step does not wait for: their late pushes are dropped\n"
    "  --mode sync|async     async: every push is an update, nobody waits\n"
    "  --staleness N         async: steps that a worker may be ahead of the slowest; default any number\n"
    "  --elastic             a lost worker is waited for no longer; workers join at any time\n"
    "  --folder DIR          snapshots and journal: a server started there goes on where this one was\n"
    "  --durability WORD     journal (default): an update is in the journal before it is acknowledged;\n"
    "                        fsync: and on the disk; volatile: snapshots only\n"
    "  --repair              goes on from what is whole of a damaged journal, and keeps the file as it was beside\n"
    "                        it; workers that know of later steps are refused, and to be started again\n"
    "  --save-every N        updates between two snapshots; else when the journal has grown, when a worker\n"
    "                        asks for it, and at the end\n"
    "  --batch N             examples of a global batch: workers hear of their shares, by their speed\n"
    "  --plain               takes no compressed gradients\n"
    "  --memory SIZE         most that gradients under way may take; default 1GiB\n"
    "  --connections N       most at a time; default 4096\n"
    "  --updates N           ends after so many updates\n"
    "  --metrics ADDRESS     Prometheus' text format at http://ADDRESS/metrics\n"
    "  --key FILE            pre-shared key (TLS 1.3): 32 bytes or more, readable by its owner alone; or\n"
    "  --certificate, --private-key, --authority FILE\n"
    "                        PEM; both sides are verified\n"
    "  --server-name NAME    --status: that the server's certificate must carry; default: the host of ADDRESS\n"
    "  --insecure            serves other machines without a key: anyone who can connect can change the model\n"
    "  --heartbeat SECONDS   default 5;  --lease SECONDS  silence after which a worker is lost, default 15\n"
    "  --chunk SIZE          of a frame; default 256KiB\n"
    "  --threads N           of updates; default: the cores of the largest cluster\n"
    "  --status ADDRESS      prints the state of a running server as JSON, and ends\n"
    "  --help                this text\n"
    "\n"
    "SIGTERM and SIGINT: a snapshot (with --folder), then the end.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

enum { MOST_ADDRESSES = 16 };

typedef struct options {
    const char *model, *status, *addresses[MOST_ADDRESSES];
    linnet_server_config config;
    long updates, backup;
} options;

static linnet_server *running;

static void stop(int number) {
    (void)number;
    linnet_server_stop(running, 0);
}

static bool take_count(const char *option, const char *text, int32_t *to) {
    long value;
    if (!tool_number(tool, option, text, 0, 2000000000, &value)) return false;
    *to = (int32_t)value;
    return true;
}

static bool take_time(const char *option, const char *text, int32_t *to) {
    double value;
    if (!tool_seconds(tool, option, text, &value)) return false;
    if (value > 86400 || value < 0.001) return tool_usage(tool, "%s: expected 0.001 to 86400 seconds", option), false;
    *to = (int32_t)(value * 1000 + 0.5);
    return true;
}

/* One of some words; its place among them. */
static bool take_word(const char *option, const char *text, const char *const *words, int32_t *to) {
    for (int32_t i = 0; words[i]; i++)
        if (!strcmp(text, words[i])) return *to = i, true;
    fprintf(stderr, "%s: error: %s: expected", tool, option);
    for (int i = 0; words[i]; i++) fprintf(stderr, "%s %s", i ? " or" : "", words[i]);
    fprintf(stderr, ", got '%s'\n", text);
    return false;
}

static bool take_value(options *o, const char *option, const char *text) {
    static const char *const modes[] = {"sync", "async", NULL};
    static const char *const durabilities[] = {"journal", "fsync", "volatile", NULL};
    linnet_server_config *c = &o->config;
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--folder", &c->folder},
                 {"--metrics", &c->metrics},
                 {"--key", &c->link.key_file},
                 {"--certificate", &c->link.certificate},
                 {"--private-key", &c->link.private_key},
                 {"--authority", &c->link.authority},
                 {"--libssl", &c->link.libssl},
                 {"--server-name", &c->link.server_name},
                 {"--status", &o->status}};
    const struct {
        const char *name;
        int32_t *to;
    } counts[] = {{"--workers", &c->workers},
                  {"--staleness", &c->staleness},
                  {"--save-every", &c->save_every},
                  {"--connections", &c->max_workers},
                  {"--threads", &c->threads}};
    size_t size;
    long value;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(option, texts[i].name)) return *texts[i].to = text, true;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!strcmp(option, counts[i].name)) return take_count(option, text, counts[i].to);
    if (!strcmp(option, "--listen")) {
        if (c->listen_count == MOST_ADDRESSES)
            return tool_usage(tool, "--listen: at most %d addresses", (int)MOST_ADDRESSES), false;
        o->addresses[c->listen_count++] = text;
        return true;
    }
    if (!strcmp(option, "--mode")) return take_word(option, text, modes, &c->mode);
    if (!strcmp(option, "--durability")) return take_word(option, text, durabilities, &c->durability);
    if (!strcmp(option, "--backup")) return tool_number(tool, option, text, 0, 1000000, &o->backup);
    if (!strcmp(option, "--updates")) return tool_number(tool, option, text, 1, 2000000000, &o->updates);
    if (!strcmp(option, "--heartbeat")) return take_time(option, text, &c->link.heartbeat_ms);
    if (!strcmp(option, "--lease")) return take_time(option, text, &c->link.lease_ms);
    if (!strcmp(option, "--batch")) {
        if (!tool_number(tool, option, text, 1, 2000000000, &value)) return false;
        c->batch = value;
        return true;
    }
    if (!tool_size(tool, option, text, &size)) return false;
    if (!strcmp(option, "--chunk"))
        c->link.chunk = size > 1 << 30 ? 1 << 30 : (int32_t)size;
    else
        c->max_bytes = size;
    return true;
}

static bool takes_value(const char *option) {
    static const char *const all[] = {"--listen",      "--workers",    "--backup",     "--mode",       "--staleness",
                                      "--folder",      "--durability", "--save-every", "--batch",      "--memory",
                                      "--connections", "--updates",    "--metrics",    "--key",        "--certificate",
                                      "--private-key", "--authority",  "--libssl",     "--heartbeat",  "--lease",
                                      "--chunk",       "--threads",    "--status",     "--server-name"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(option, all[i])) return true;
    return false;
}

static int parse(options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value;
        if (!strcmp(option, "--help")) {
            fputs(help, stdout);
            exit(TOOL_OK);
        } else if (!strcmp(option, "--elastic")) {
            o->config.elastic = 1;
        } else if (!strcmp(option, "--plain")) {
            o->config.compression = 1;
        } else if (!strcmp(option, "--repair")) {
            o->config.repair = 1;
        } else if (!strcmp(option, "--insecure")) {
            o->config.link.insecure = 1;
        } else if (takes_value(option)) {
            if (!(value = tool_value(tool, argc, argv, &i)) || !take_value(o, option, value)) return TOOL_USAGE;
        } else if (option[0] == '-') {
            return tool_usage(tool, "unknown option %s; --help lists them", option);
        } else if (o->model) {
            return tool_usage(tool, "one model is served: '%s' or '%s'?", o->model, option);
        } else {
            o->model = option;
        }
    }
    if (o->status) return TOOL_OK;
    if (!o->model) return tool_usage(tool, "which model? usage: linnet-serve MODEL.lnt [--listen ADDRESS]");
    if (!o->config.workers) o->config.workers = 1;
    if (o->backup >= o->config.workers)
        return tool_usage(tool, "--backup %ld of --workers %d leaves nobody", o->backup, (int)o->config.workers);
    if (o->backup) o->config.quorum = o->config.workers - (int32_t)o->backup;
    if (o->config.listen_count) o->config.listen = o->addresses;
    return TOOL_OK;
}

static int print_status(const options *o) {
    linnet_error error;
    size_t size = 1 << 16, needed = 0;
    char *text = malloc(size);
    for (int i = 0; i < 2 && text; i++) {
        if (linnet_sync_status(o->status, &o->config.link, text, size, &needed, &error)) {
            free(text);
            return tool_fail_record(tool, &error);
        }
        if (needed < size) break;
        size = needed + 4096;
        free(text);
        text = malloc(size);
    }
    if (!text) return tool_fail(tool, "no memory for a status of %zu bytes", needed);
    puts(text);
    free(text);
    return TOOL_OK;
}

/* A descriptor for each connection, as far as the system grants them. */
static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int serve(const options *o) {
    linnet_model *model = NULL;
    linnet_server *server = NULL;
    linnet_error error;
    struct sigaction action;
    int status = TOOL_OK;
    allow_descriptors();
    if (linnet_model_open(o->model, NULL, &model, &error)) return tool_fail_record(tool, &error);
    if (linnet_server_create(model, NULL, &o->config, &server, &error)) {
        linnet_model_free(model);
        return tool_fail_record(tool, &error);
    }
    running = server;
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    for (int i = 0; linnet_server_address(server, i); i++) printf("listening %s\n", linnet_server_address(server, i));
    if (linnet_server_address(server, -1)) printf("metrics %s\n", linnet_server_address(server, -1));
    fflush(stdout);
    if (linnet_server_run(server, (uint64_t)o->updates, &error)) status = tool_fail_record(tool, &error);
    action.sa_handler = SIG_IGN;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    linnet_server_free(server);
    linnet_model_free(model);
    return status;
}

int main(int argc, char **argv) {
    options o;
    int status;
    memset(&o, 0, sizeof o);
    linnet_server_config_init(&o.config);
    status = parse(&o, argc, argv);
    if (status) return status;
    return o.status ? print_status(&o) : serve(&o);
}
