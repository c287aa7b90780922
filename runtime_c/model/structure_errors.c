/* structure_errors.c - how a file that is damaged, or that does not fit into memory, is reported. */
#include "model/structure_errors.h"

#include "model/structure_reader.h"

linnet_status ln_structure_problem(const ln_fb *fb, linnet_status otherwise, linnet_error *error) {
    if (!fb->problem) return otherwise;
    ln_fail(error, LINNET_CORRUPT, "the structure is damaged: %s", fb->problem);
    ln_got(error, "a problem at byte %zu of the structure", fb->where);
    ln_hint(error, "copy the file again, or convert the model again");
    return LINNET_CORRUPT;
}

linnet_status ln_reader_problem(ln_reader *r) { return ln_structure_problem(&r->fb, LINNET_OK, r->error); }

/* Fails with CORRUPT. `name` is the name of the item; `kind` says what the number `got` counts, as in "segment 3". */
linnet_status ln_reader_corrupt_number(ln_reader *r, const char *name, const char *what, const char *kind,
                                       int64_t got) {
    if (r->fb.problem) return ln_structure_problem(&r->fb, LINNET_OK, r->error);
    ln_fail(r->error, LINNET_CORRUPT, "%s", what);
    ln_at_tensor(r->error, name);
    ln_got(r->error, "%s%lld", kind, (long long)got);
    return ln_hint(r->error, "copy the file again, or convert the model again"), LINNET_CORRUPT;
}

linnet_status ln_reader_corrupt(ln_reader *r, const char *name, const char *what, int64_t got) {
    return ln_reader_corrupt_number(r, name, what, "", got);
}

linnet_status ln_reader_no_memory(ln_reader *r) {
    return ln_fail(r->error, LINNET_OUT_OF_MEMORY, "cannot allocate the structure of a model");
}
