/* linnet_host.c - lends this machine to clients, which run parts of their models on it: parses options, handles
 * signals, calls ln_host_run (runtime_c/remote). It takes no model: clients send the pieces that they run. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "help.h"
#include "messages.h"
#include "options.h"
#include "values.h"

#include "net/transport_security.h"
#include "remote/host.h"

#include "linnet_device.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tool[] = "linnet-host";
static const char help[] = "usage: linnet-host [--listen ADDRESS] [options]\n"
                           "Lends the processors and the memory of this machine to other machines: it runs\n"
                           "the parts of models that clients send. A client names it as a device, such as\n"
                           "remote:pi1:7700 (docs/machines.md).\n"
                           "\n"
                           "  --listen ADDRESS      HOST:PORT, *:PORT (all interfaces), :PORT (loopback),\n"
                           "                        unix:PATH, or shm:PATH (this machine); default :7700.\n"
                           "                        Port 0 lets the system choose. The host prints the\n"
                           "                        address as `listening ADDRESS`\n"
                           "  --key FILE            pre-shared key for TLS 1.3: at least 32 bytes, readable\n"
                           "                        only by its owner. Without a key or certificates, only\n"
                           "                        clients on this machine are served\n"
                           "  --certificate FILE, --private-key FILE, --authority FILE\n"
                           "                        PEM files, instead of --key; both sides verify each\n"
                           "                        other\n"
                           "  --max-bytes SIZE      memory limit of all clients together; default: none\n"
                           "  --timeout SECONDS     time limit of each run; default: none\n"
                           "  --send-timeout SECONDS\n"
                           "                        hang up on a client that reads nothing of an answer for\n"
                           "                        so long; default 600\n"
                           "  --threads N           number of threads of each run; default: the cores of the\n"
                           "                        largest cluster\n"
                           "  --device NAME         device that runs what it can, such as opencl. May be\n"
                           "                        repeated\n"
                           "  --tuning FILE         rates of this machine, which `linnet tune --machine`\n"
                           "                        wrote: clients get better predictions\n"
                           "  --folder DIR          folder in which pieces stay for the next start. Weights\n"
                           "                        of your own .lnt files in it are not sent to the host\n"
                           "  --folder-bytes SIZE   size limit of pieces in the folder; default 1GiB. Those\n"
                           "                        that were used longest ago are removed\n"
                           "  --no-peers            neither fetch values from other hosts nor send them\n"
                           "                        there; clients then carry all values\n"
                           "  --json                print the address as a line of JSON\n"
                           "  --version             print the version\n"
                           "  --help                print this text\n"
                           "\n"
                           "SIGTERM and SIGINT end it.\n"
                           "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

typedef struct options {
    ln_host_config config;
    ln_net_security_config security;
    const linnet_device *devices[TOOL_MOST_DEVICES];
    size_t max_bytes, folder_bytes;
    long threads;
    char *tuning;
    bool json;
} options;

static ln_host *running;

static void stop(int number) {
    (void)number;
    ln_host_stop(running);
}

static bool take_device(options *o, const char *name) {
    linnet_error error;
    if (o->config.device_count == TOOL_MOST_DEVICES)
        return tool_usage(tool, "--device may be given at most %d times", (int)TOOL_MOST_DEVICES), false;
    if (linnet_device_open(name, &o->devices[o->config.device_count], &error))
        return tool_fail_record(tool, &error), false;
    o->config.device_count++;
    return true;
}

static bool take_value(options *o, const char *option, const char *text) {
    const struct {
        const char *name, **to;
    } texts[] = {{"--listen", &o->config.address},
                 {"--key", &o->security.key_file},
                 {"--certificate", &o->security.certificate},
                 {"--private-key", &o->security.private_key},
                 {"--authority", &o->security.authority},
                 {"--folder", &o->config.folder}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(option, texts[i].name) == 0) return *texts[i].to = text, true;
    if (strcmp(option, "--device") == 0) return take_device(o, text);
    if (strcmp(option, "--tuning") == 0) return tool_take_tuning(tool, text, &o->tuning) == TOOL_OK;
    if (strcmp(option, "--threads") == 0) return tool_number(tool, option, text, 1, 1024, &o->threads);
    if (strcmp(option, "--timeout") == 0) return tool_seconds(tool, option, text, &o->config.timeout);
    if (strcmp(option, "--send-timeout") == 0) return tool_seconds(tool, option, text, &o->config.send_timeout);
    if (strcmp(option, "--max-bytes") == 0) return tool_size(tool, option, text, &o->max_bytes);
    return tool_size(tool, option, text, &o->folder_bytes);
}

static bool takes_value(const char *option) {
    static const char *const all[] = {"--listen",    "--key",     "--certificate", "--private-key", "--authority",
                                      "--max-bytes", "--threads", "--device",      "--folder",      "--folder-bytes",
                                      "--timeout",   "--tuning",  "--send-timeout"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(option, all[i]) == 0) return true;
    return false;
}

static int parse(options *o, int argc, char **argv) {
    const char *stray = NULL;
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value;
        bool *flag = strcmp(option, "--json") == 0       ? &o->json
                     : strcmp(option, "--no-peers") == 0 ? &o->config.no_peers
                                                         : NULL;
        if (flag != NULL) {
            *flag = true;
            continue;
        }
        if (option[0] != '-')
            stray = option;
        else if (!takes_value(option))
            return tool_unknown(tool, help, option);
        else if ((value = tool_value(tool, argc, argv, &i)) == NULL || !take_value(o, option, value))
            return TOOL_USAGE;
    }
    if (stray != NULL) return tool_usage(tool, "expected options, got '%s'; clients send the models", stray);
    return TOOL_OK;
}

static void say(const options *o, const char *address) {
    if (!o->json) {
        printf("listening %s\n", address);
        return;
    }
    putchar('{');
    tool_json_entry("kind", "listening");
    printf(", ");
    tool_json_entry("address", address);
    puts("}");
}

static int serve(options *o) {
    linnet_error error = {0};
    struct sigaction action;
    if (o->security.key_file != NULL || o->security.certificate != NULL)
        if (ln_net_security_create(&o->security, &o->config.security, &error)) return tool_fail_record(tool, &error);
    o->config.devices = o->devices;
    o->config.max_bytes = o->max_bytes;
    o->config.folder_bytes = o->folder_bytes;
    o->config.threads = (int)o->threads;
    o->config.tuning = o->tuning;
    linnet_status status = ln_host_create(&o->config, &running, &error);
    if (status == LINNET_OK) {
        memset(&action, 0, sizeof action);
        action.sa_handler = stop;
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        action.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &action, NULL);
        say(o, ln_host_address(running));
        fflush(stdout);
        status = ln_host_run(running, &error);
        ln_host_free(running);
    }
    ln_net_security_free(o->config.security);
    return status == LINNET_OK ? TOOL_OK : tool_fail_record(tool, &error);
}

int main(int argc, char **argv) {
    options o;
    memset(&o, 0, sizeof o);
    o.config.address = ":7700";
    o.folder_bytes = (size_t)1 << 30;
    o.config.send_timeout = 600;
    if (tool_answers(tool, help, argc, argv)) return TOOL_OK;
    const int status = parse(&o, argc, argv);
    const int ended = status != TOOL_OK ? status : serve(&o);
    free(o.tuning);
    return ended;
}
