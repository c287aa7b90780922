/* run.c - runs a session within the time limit of the options, on a thread that may be bound to a core. The first
 * SIGINT or SIGTERM cancels the run. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "run.h"

#include "linnet_ext.h"

#include <signal.h>
#include <string.h>

int tool_bind(const tool_options *options, bool bound) {
    linnet_error error;
    return options->bind && linnet_bind_thread(bound ? 0 : -1, &error) ? tool_fail_record(options->tool, &error)
                                                                       : TOOL_OK;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

void tool_catch_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* a second signal gets the system's default action */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int tool_run(const tool_options *options, linnet_session *session) {
    linnet_error error;
    linnet_run_config config;
    linnet_status status;
    linnet_run_config_init(&config);
    config.cancel = &interrupted;
    config.timeout_ns = (uint64_t)(1e9 * options->timeout);
    status = linnet_run_with(session, &config, &error);
    if (status == LINNET_OK) return TOOL_OK;
    if (status != LINNET_CANCELLED) return tool_fail_record(options->tool, &error);
    tool_fail(options->tool, "interrupted");
    return TOOL_INTERRUPTED;
}
