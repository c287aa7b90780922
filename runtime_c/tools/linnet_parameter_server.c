/* linnet_parameter_server.c - a training server without Python: parses options, handles signals, calls
 * linnet_server_run. The model file comes from linnet.sync.signatures. Any kind of worker may connect. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "help.h"
#include "messages.h"
#include "open.h"
#include "options.h"
#include "values.h"
#include "linnet_sync.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char tool[] = "linnet-parameter-server";
static const char help[] = "usage: linnet-parameter-server MODEL.lnt [--listen ADDRESS]... [options]\n"
                           "       linnet-parameter-server --status ADDRESS [--key FILE]\n"
                           "Parameter server of a training job: holds the parameters and the optimizer\n"
                           "state, and applies the gradients that workers push. The model is a file written\n"
                           "by linnet.sync.signatures or linnet.sync.shard (docs/training.md).\n"
                           "\n"
                           "  --listen ADDRESS      HOST:PORT, :PORT (loopback), unix:PATH, or shm:PATH\n"
                           "                        (processes of one machine). Port 0 lets the system\n"
                           "                        choose a port. May be repeated; default :0. The server\n"
                           "                        prints every address as `listening ADDRESS`\n"
                           "  --workers N           number of workers that a step needs; default 1\n"
                           "  --backup N            number of these workers that a step does not wait for;\n"
                           "                        their late pushes are dropped\n"
                           "  --mode MODE           synchronous (default), or asynchronous: every push is an\n"
                           "                        update and no worker waits for another\n"
                           "  --staleness N         asynchronous: maximum lead of a worker over the slowest,\n"
                           "                        in steps; default: no limit\n"
                           "  --elastic             do not wait for lost workers, and let workers join at\n"
                           "                        any time\n"
                           "  --folder DIR          folder for snapshots and the journal; if it already has\n"
                           "                        some, the server continues from them\n"
                           "  --durability WORD     what the server does before it acknowledges an update.\n"
                           "                        journal (default): write the update to the journal.\n"
                           "                        fsync: also flush the journal to the disk. volatile:\n"
                           "                        neither; only snapshots can restore the update\n"
                           "  --repair              continue from the undamaged part of a damaged journal,\n"
                           "                        and keep a copy of the damaged file beside it. The\n"
                           "                        server refuses workers that are ahead of this part:\n"
                           "                        restart them\n"
                           "  --save-every N        number of updates between two snapshots. Default: a\n"
                           "                        snapshot when the journal has grown large, when a worker\n"
                           "                        asks for one, and at the end\n"
                           "  --batch N             number of examples in a global batch; the server divides\n"
                           "                        it among the workers by their speed\n"
                           "  --plain               accept only uncompressed gradients\n"
                           "  --memory SIZE         memory limit for gradients in transit; default 1GiB\n"
                           "  --connections N       maximum number of connections; default 4096\n"
                           "  --updates N           end after this many updates\n"
                           "  --metrics ADDRESS     serve metrics in Prometheus' text format at\n"
                           "                        http://ADDRESS/metrics\n"
                           "  --key FILE            pre-shared key for TLS 1.3: at least 32 bytes, readable\n"
                           "                        only by its owner\n"
                           "  --certificate FILE, --private-key FILE, --authority FILE\n"
                           "                        PEM files, instead of --key; server and workers verify\n"
                           "                        each other\n"
                           "  --server-name NAME    with --status: name that the server's certificate must\n"
                           "                        carry; default: the host of ADDRESS\n"
                           "  --insecure            serve other machines without a key: anyone who can\n"
                           "                        connect can change the model\n"
                           "  --heartbeat SECONDS   time between two heartbeats of a worker; default 5\n"
                           "  --lease SECONDS       time without a message after which a worker is lost;\n"
                           "                        default 15\n"
                           "  --chunk SIZE          chunk size: the largest payload of a frame; default\n"
                           "                        256KiB\n"
                           "  --user-ops FILE       shared library of the user ops that the model names\n"
                           "  --threads N           number of threads that compute updates; default: the\n"
                           "                        cores of the largest cluster\n"
                           "  --status ADDRESS      print the state of a running server as JSON, and exit\n"
                           "  --json                print the addresses as lines of JSON\n"
                           "  --version             print the version\n"
                           "  --help                print this text\n"
                           "\n"
                           "SIGTERM and SIGINT make the server write a snapshot (with --folder) and exit.\n"
                           "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

enum { MOST_ADDRESSES = 16 };

typedef struct options {
    const char *model, *status, *user_ops, *addresses[MOST_ADDRESSES];
    linnet_server_config config;
    linnet_link_config link;
    long updates, backup;
    bool json;
} options;

static linnet_server *running;

static void stop(int number) {
    (void)number;
    linnet_server_stop(running, LINNET_SYNC_PAUSE);
}

static bool take_count(const char *option, const char *text, int32_t least, int32_t *to) {
    long value;
    if (!tool_number(tool, option, text, least, 2000000000, &value)) return false;
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

/* Finds `text` in the list `words` and stores its index. */
static bool take_word(const char *option, const char *text, const char *const *words, int32_t *to) {
    for (int32_t i = 0; words[i]; i++)
        if (!strcmp(text, words[i])) return *to = i, true;
    size_t used = 0;
    char expected[128];
    for (int i = 0; words[i] && used < sizeof expected; i++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", i ? " or " : "", words[i]);
    return tool_usage(tool, "%s: expected %s, got '%s'", option, expected, text), false;
}

static bool take_value(options *o, const char *option, const char *text) {
    static const char *const modes[] = {"synchronous", "asynchronous", NULL};
    static const char *const durabilities[] = {"journal", "fsync", "volatile", NULL};
    linnet_server_config *c = &o->config;
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--folder", &c->folder},
                 {"--metrics", &c->metrics},
                 {"--key", &o->link.key_file},
                 {"--certificate", &o->link.certificate},
                 {"--private-key", &o->link.private_key},
                 {"--authority", &o->link.authority},
                 {"--libssl", &o->link.libssl},
                 {"--user-ops", &o->user_ops},
                 {"--server-name", &o->link.server_name},
                 {"--status", &o->status}};
    const struct {
        const char *name;
        int32_t least, *to;
    } counts[] = {{"--workers", 1, &c->workers},
                  {"--staleness", 0, &c->staleness},
                  {"--save-every", 0, &c->save_every},
                  {"--connections", 1, &c->max_workers},
                  {"--threads", 0, &c->threads}};
    size_t size;
    long value;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(option, texts[i].name)) return *texts[i].to = text, true;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!strcmp(option, counts[i].name)) return take_count(option, text, counts[i].least, counts[i].to);
    if (!strcmp(option, "--listen")) {
        if (c->listen_count == MOST_ADDRESSES)
            return tool_usage(tool, "--listen may be given at most %d times", (int)MOST_ADDRESSES), false;
        o->addresses[c->listen_count++] = text;
        return true;
    }
    if (!strcmp(option, "--mode")) return take_word(option, text, modes, &c->mode);
    if (!strcmp(option, "--durability")) return take_word(option, text, durabilities, &c->durability);
    if (!strcmp(option, "--backup")) return tool_number(tool, option, text, 0, 1000000, &o->backup);
    if (!strcmp(option, "--updates")) return tool_number(tool, option, text, 1, 2000000000, &o->updates);
    if (!strcmp(option, "--heartbeat")) return take_time(option, text, &o->link.heartbeat_ms);
    if (!strcmp(option, "--lease")) return take_time(option, text, &o->link.lease_ms);
    if (!strcmp(option, "--batch")) {
        if (!tool_number(tool, option, text, 1, 2000000000, &value)) return false;
        c->batch = value;
        return true;
    }
    if (!tool_size(tool, option, text, &size)) return false;
    if (!strcmp(option, "--chunk"))
        o->link.chunk = size > 1 << 30 ? 1 << 30 : (int32_t)size;
    else
        c->max_bytes = size;
    return true;
}

static bool takes_value(const char *option) {
    static const char *const all[] = {"--listen",      "--workers",    "--backup",     "--mode",        "--staleness",
                                      "--folder",      "--durability", "--save-every", "--batch",       "--memory",
                                      "--connections", "--updates",    "--metrics",    "--key",         "--certificate",
                                      "--private-key", "--authority",  "--libssl",     "--heartbeat",   "--lease",
                                      "--chunk",       "--threads",    "--status",     "--server-name", "--user-ops"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(option, all[i])) return true;
    return false;
}

static int parse(options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value;
        if (!strcmp(option, "--elastic")) {
            o->config.elastic = true;
        } else if (!strcmp(option, "--plain")) {
            o->config.plain = true;
        } else if (!strcmp(option, "--repair")) {
            o->config.repair = true;
        } else if (!strcmp(option, "--insecure")) {
            o->link.insecure = true;
        } else if (!strcmp(option, "--json")) {
            o->json = true;
        } else if (takes_value(option)) {
            if (!(value = tool_value(tool, argc, argv, &i)) || !take_value(o, option, value)) return TOOL_USAGE;
        } else if (option[0] == '-') {
            return tool_unknown(tool, help, option);
        } else if (o->model) {
            return tool_usage(tool, "expected one model file, got '%s' and '%s'", o->model, option);
        } else {
            o->model = option;
        }
    }
    if (o->status) return TOOL_OK;
    if (!o->model) return tool_usage(tool, "no model given; give a .lnt file");
    if (!o->config.workers) o->config.workers = 1;
    if (o->backup >= o->config.workers)
        return tool_usage(tool, "--backup %ld must be less than --workers %d", o->backup, (int)o->config.workers);
    if (o->backup) o->config.quorum = o->config.workers - (int32_t)o->backup;
    if (o->config.listen_count) o->config.listen = o->addresses;
    return TOOL_OK;
}

static int print_status(const options *o) {
    linnet_error error;
    size_t size = 1 << 16, needed = 0;
    char *text = malloc(size);
    for (int i = 0; i < 2 && text; i++) {
        if (linnet_sync_status(o->status, &o->link, text, size, &needed, &error)) {
            free(text);
            return tool_fail_record(tool, &error);
        }
        if (needed < size) break;
        size = needed + 4096;
        free(text);
        text = malloc(size);
    }
    if (!text) return tool_no_memory(tool);
    puts(text);
    free(text);
    return tool_flush(tool);
}

/* Raises the limit of open files as far as the system allows, because every connection needs a descriptor. */
static void allow_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void say(const options *o, const char *what, const char *address) {
    if (!o->json) {
        printf("%s %s\n", what, address);
        return;
    }
    putchar('{');
    tool_json_entry("kind", what);
    printf(", ");
    tool_json_entry("address", address);
    puts("}");
}

static int serve(const options *o) {
    linnet_model *model = NULL;
    linnet_server *server = NULL;
    linnet_error error;
    linnet_model_config config;
    struct sigaction action;
    int status = TOOL_OK;
    linnet_model_config_init(&config);
    if (!tool_user_ops(tool, o->user_ops, &config)) return TOOL_FAILED;
    allow_descriptors();
    if (linnet_model_open(o->model, &config, &model, &error)) return tool_fail_record(tool, &error);
    if (tool_is_checkpoint(tool, o->model, model)) return linnet_model_free(model), TOOL_FAILED;
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
    for (int i = 0; linnet_server_address(server, i); i++) say(o, "listening", linnet_server_address(server, i));
    if (linnet_server_address(server, -1)) say(o, "metrics", linnet_server_address(server, -1));
    fflush(stdout);
    if (linnet_server_run(server, (uint64_t)o->updates, &error)) status = tool_fail_record(tool, &error);
    action.sa_handler = SIG_IGN;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    linnet_server_free(server);
    linnet_model_free(model);
    return status;
}

/* The program was called linnet-serve. The old name is a link that works for one version. */
static void tell_new_name(const char *called) {
    const char *name = called ? strrchr(called, '/') : NULL;
    name = name ? name + 1 : called;
    if (name && strcmp(name, "linnet-serve") == 0)
        fprintf(stderr, "linnet-serve: warning: this command is now %s\n", tool);
}

int main(int argc, char **argv) {
    options o;
    int status;
    tell_new_name(argc > 0 ? argv[0] : NULL);
    memset(&o, 0, sizeof o);
    linnet_server_config_init(&o.config);
    linnet_link_config_init(&o.link);
    o.config.link = &o.link;
    if (tool_answers(tool, help, argc, argv)) return TOOL_OK;
    status = parse(&o, argc, argv);
    if (status) return status;
    return o.status ? print_status(&o) : serve(&o);
}
