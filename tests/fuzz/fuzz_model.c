/* fuzz_model.c - changes a .lnt file at random in memory, then opens, plans and runs the result.
 * usage: fuzz_model FILE.lnt COUNT SEED. Build it with sanitizers, which end it with a status if they find anything. */
#define _POSIX_C_SOURCE 200809L

#include "exercise.h"

#include <unistd.h>

enum { CASE_SECONDS = 60 };

static void one_case(fuzz *f) {
    unsigned char *exact;
    mutant_make(&f->m);
    /* An allocation of exactly the file's size, so that AddressSanitizer detects any read beyond it. */
    exact = malloc(f->m.size ? f->m.size : 1);
    if (!exact) exit(3);
    memcpy(exact, f->m.bytes, f->m.size);
    exercise(f, exact, f->m.size);
    free(exact);
    free(f->m.bytes);
}

int main(int argc, char **argv) {
    static fuzz f;
    long count;
    if (argc != 4 || (count = strtol(argv[2], NULL, 10)) < 1) {
        fprintf(stderr, "usage: fuzz_model FILE.lnt COUNT SEED\n");
        return 2;
    }
    f.m.state = strtoull(argv[3], NULL, 10);
    if (!mutant_load(&f.m, argv[1])) {
        fprintf(stderr, "fuzz_model: error: cannot read %s\n", argv[1]);
        return 1;
    }
    for (long i = 0; i < count; i++) {
        fuzz before = f;
        if (getenv("FUZZ_VERBOSE")) fprintf(stderr, "case %ld: state %llu\n", i, (unsigned long long)before.m.state);
        alarm(CASE_SECONDS); /* a case that hangs is a failure: the signal ends the program */
        one_case(&f);
    }
    alarm(0);
    printf("fuzz_model: %ld cases, %ld opened, %ld planned, %ld runs;", count, f.opened, f.planned, f.ran);
    exercise_counts(&f);
    free(f.m.file);
    return 0;
}
