/* cpu.h - the features of the processor, and their names. */
#ifndef LN_CPU_H
#define LN_CPU_H

#include "kernel/kernel.h"

ln_features ln_detect_features(void); /* all that this machine and its operating system have */
#if defined(__x86_64__)
/* The features that CPUID reports. The arguments are ECX of leaf 1, EBX and ECX of leaf 7, EAX of subleaf 1 of leaf 7,
 * and XCR0. */
ln_features ln_x86_features(unsigned leaf1, unsigned leaf7b, unsigned leaf7c, unsigned part1, unsigned state);
#endif
const ln_isa_set *ln_isa_find(const char *name); /* NULL: there is no such set */
/* The last set whose mark is one of the features. */
const ln_isa_set *ln_isa_of(ln_features features);

#endif
