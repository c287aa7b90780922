/* cpu.h - detects the features of the processor, and finds the named sets of features. */
#ifndef LN_CPU_H
#define LN_CPU_H

#include "kernel/kernel.h"

/* Returns every feature that both the processor and the operating system support, also those that this build has no
 * kernels for. */
ln_features ln_detect_features(void);
#if defined(__x86_64__)
/* Returns the features for given results of CPUID, which makes detection testable on any machine. leaf1 is ECX of
 * leaf 1, leaf7b and leaf7c are EBX and ECX of leaf 7, part1 is EAX of leaf 7's subleaf 1, and state is XCR0. */
ln_features ln_x86_features(unsigned leaf1, unsigned leaf7b, unsigned leaf7c, unsigned part1, unsigned state);
#endif
/* Returns the set of this name; NULL if there is none or name is NULL. */
const ln_isa_set *ln_isa_find(const char *name);
/* Returns the last set whose mark is among these features and for which this build has kernels. At worst this is
 * "scalar". */
const ln_isa_set *ln_isa_of(ln_features features);

#endif
