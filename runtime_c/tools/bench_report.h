/* bench_report.h - what linnet-bench has measured, and how it prints it. */
#ifndef LN_TOOLS_BENCH_REPORT_H
#define LN_TOOLS_BENCH_REPORT_H

#include "linnet_ext.h"
#include "options.h"
#include "system.h"

/* The command line, the model, and the figures. */
typedef struct bench {
    tool_options common;
    double seconds;
    bool json, ops, peaks;
    linnet_model *model;
    linnet_plan *plan;
    linnet_session *session;
    double load, plan_time, session_time, first, cold;
    double median, least, p95, mean;
    int runs;
    linnet_plan_info memory;
    uint64_t most; /* linnet_plan_bound */
    linnet_error unbounded;
    linnet_step_info *steps;  /* with the times of one run, the medians, if --ops or --json is given */
    tool_state before, after; /* of the machine, at the start and at the end of the steady runs */
    int fastest_mhz;          /* the highest clock that was seen in between */
    long long peak_rss;
} bench;

/* Prints the figures as one JSON object. */
void bench_print_json(const bench *b);
/* Prints the figures as text. */
void bench_print_text(const bench *b);

#endif
