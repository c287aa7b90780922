/* can_run.h - whether this machine can run a kernel of the lists, whether the kernel takes a call, and an op's
 * reference. For tests and benchmarks that call kernels without a plan. `test_gemm --only s8,avx2` runs only the
 * kernels whose names contain all of the words; a word that is a dtype, as in `--only i8,avx2`, chooses the calls whose
 * first operand has it. */
#ifndef LN_CAN_RUN_H
#define LN_CAN_RUN_H

#include "kernel/kernel.h"
#include "dispatch/dispatch.h"
#include "kernel/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The features of this machine. They are asked for once: on a virtual machine, CPUID takes tens of microseconds. */
static inline ln_features machine_features(void) {
    static ln_features features;
    static bool asked;
    if (!asked) features = ln_detect_features();
    asked = true;
    return features;
}

static char only_text[128], *only_words[16];
static int n_only_words, only_dtype = LINNET_NONE;

/* Takes `--only WORD,WORD...` from the arguments of main. */
static inline void read_only(int *argc, char **argv) {
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--only") != 0) continue;
        if (i + 1 == *argc) fprintf(stderr, "--only needs words of kernels' names, as in --only s8,avx2\n"), exit(2);
        snprintf(only_text, sizeof only_text, "%s", argv[i + 1]);
        for (char *word = strtok(only_text, ","); word != NULL && n_only_words < 16; word = strtok(NULL, ",")) {
            int dtype = LN_LAST_DTYPE;
            if (strcmp(word, "s8") == 0) word = "i8"; /* as the files of kernels call it */
            while (dtype > LINNET_NONE && strcmp(linnet_dtype_name(dtype), word) != 0) dtype--;
            if (dtype != LINNET_NONE)
                only_dtype = dtype;
            else
                only_words[n_only_words++] = word;
        }
        for (*argc -= 2; i <= *argc; i++) argv[i] = argv[i + 2];
        return;
    }
}

static inline bool is_filtered(void) { return n_only_words > 0 || only_dtype != LINNET_NONE; }

/* Whether calls with this dtype are wanted. */
static inline bool wants_dtype(int dtype) { return only_dtype == LINNET_NONE || dtype == only_dtype; }

static inline bool wants_name(const char *name) {
    for (int i = 0; i < n_only_words; i++)
        if (strstr(name, only_words[i]) == NULL) return false;
    return true;
}

/* Whether this machine has what the kernel needs, and --only names it. References always run. */
static inline bool can_run(const ln_kernel *kernel) {
    return (kernel->flags & LN_KERNEL_REFERENCE) ||
           (wants_name(kernel->name) && !(kernel->needs & ~machine_features()));
}

static inline bool takes(const ln_kernel *kernel, const ln_call *call) {
    return ln_kernel_refusal(kernel, call, false) == LINNET_REFUSAL_NONE;
}

static inline const ln_kernel *reference_of(int op) {
    const ln_kernel *k = ln_kernels;
    while (k->op != op || !(k->flags & LN_KERNEL_REFERENCE)) k++;
    return k;
}

/* The precision that permits a kernel; it forces none. */
static inline int permitting(const ln_kernel *kernel) {
    return strstr(kernel->name, "__bf16") != NULL ? LINNET_PRECISION_BF16 : LINNET_PRECISION_F16;
}

#endif
