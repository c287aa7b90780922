/* results.h - reads the metadata entries that describe inputs and outputs, and prints outputs by them.
 * An entry is a word ("image", "audio", "classes", "boxes", "text"), followed by key=value words. */
#ifndef LINNET_TOOLS_RESULTS_H
#define LINNET_TOOLS_RESULTS_H

#include "linnet.h"

/* Returns the metadata entry "prefix:signature:name"; NULL if there is none. `prefix` is "io" or "labels". */
const char *results_about(const linnet_model *model, const char *prefix, const char *signature, const char *name);
/* Tells whether the entry begins with the word `kind`. */
bool results_is(const char *about, const char *kind);
/* Copies the value of a key to `value`. Returns false if the key is absent or the value does not fit into `size` bytes.
 */
bool results_word(const char *about, const char *key, char *value, size_t size);

/* What the functions below need to print the outputs of a run. */
typedef struct results {
    const linnet_model *model;
    const linnet_plan *plan;
    const linnet_session *session;
    const char *signature;
} results;

/* Prints an output in the form that its entry describes, in lines indented by two spaces. Returns false, and prints
 * nothing, if the output has no entry. */
bool results_print(const results *r, const linnet_tensor_info *info, const void *data);
/* Prints the same facts about all outputs, as the entries of a JSON object. */
void results_json(const results *r);

#endif
