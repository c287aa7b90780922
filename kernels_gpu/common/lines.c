/* lines.c - the ranges of kernels that combine lines of elements (kernels_gpu/common/lines.h). */
#include "kernels_gpu/common/lines.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"

#include <string.h>

enum { FEW_LINES = 4096, LONG_LINE = 128, ITEMS = 64 };

bool lg_lines_in_groups(const lg_step *s, const char *name, int64_t lines, int64_t length) {
    if (lines > INT32_MAX / 256) return false;
    if (strcmp(s->machine->prefer, name) == 0) return true;
    return !s->machine->is_cpu && length >= LONG_LINE && (lines < FEW_LINES || length >= 8 * LONG_LINE);
}

void lg_range_items(lg_launch *launch, const lg_step *s, int64_t lines) {
    lg_range(launch, lines, 1, 1);
    if (s->machine->is_cpu) lg_local(launch, 16, 1, 1); /* one thread of the processor runs a whole work group */
}

void lg_range_lines(lg_launch *launch, const lg_step *s, int64_t lines, int64_t length, bool grouped) {
    const int64_t items = s->machine->most_items >= 256 && length >= 1024 && !s->machine->is_cpu ? 256 : ITEMS;
    lg_define(launch, "GROUP", grouped ? items : 1);
    if (!grouped) {
        lg_range_items(launch, s, lines);
        return;
    }
    lg_range(launch, lines * items, 1, 1);
    lg_local(launch, (size_t)items, 1, 1);
}

bool lg_lines_fit(const lg_step *s) {
    for (int i = 0; i < s->n_inputs; ++i)
        if (!lg_absent(s, i) && lg_count(&s->inputs[i]) > INT32_MAX) return false;
    if (lg_count(&s->inputs[0]) == 0) return false;
    const int64_t count = lg_count(&s->result);
    return count > 0 && count <= INT32_MAX;
}
