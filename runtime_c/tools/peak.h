/* peak.h - measures the highest rates of this machine: of multiply-accumulates in registers, and of copies.
 * linnet-bench
 * --peaks prints these rates, and the shares that it prints for each step refer to them. */
#ifndef LINNET_TOOLS_PEAK_H
#define LINNET_TOOLS_PEAK_H

#include "options.h"

/* Measures and prints all rates for options->threads threads (0: one thread) and for instruction sets up to
 * options->isa_max. Returns an exit status. */
int tool_print_peaks(const tool_options *options, bool json);

#endif
