/* results.h - the metadata entries that say what an input or output is, and printing outputs by them.
 * An entry is a word ("image", "audio", "classes", "boxes", "text"), then key=value words. */
#ifndef LINNET_TOOLS_RESULTS_H
#define LINNET_TOOLS_RESULTS_H

#include "common.h"

/* Entry prefix:signature:name ("io", "labels"); NULL when there is none. */
const char *results_about(const linnet_model *model, const char *prefix, const char *signature, const char *name);
/* Whether the entry begins with that word. */
bool results_is(const char *about, const char *kind);
/* The value of a key; false when there is none (or no room). */
bool results_word(const char *about, const char *key, char *value, size_t size);

typedef struct results {
    const linnet_model *model;
    const linnet_plan *plan;
    const linnet_session *session;
    const char *signature;
} results;

/* Lines for a person, indented by two; nothing for an output that has no entry. */
void results_print(const results *r, const linnet_tensor_info *info, const void *data);

#endif
