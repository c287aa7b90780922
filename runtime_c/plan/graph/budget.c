/* budget.c - the limits of planning, which depend on the size of the file. Folding may read and write every byte of the
   file a number of times. A fixed amount is added for small files. */
#include "plan/graph/budget.h"

#include "base/error.h"

static const uint64_t least_folded = UINT64_C(64) << 20, least_work = UINT64_C(256) << 20, least_nodes = 1 << 17,
                      beside = UINT64_C(32) << 20; /* bytes that planning may use temporarily in addition to
                                                      max_bytes */

/* Bytes of folded values per byte of the file: 4-bit weights become f32, with another copy during the conversion. */
enum { FOLDED_PER_BYTE = 16, WORK_PER_BYTE = 32, PER_NODE = 4 };

void ln_budget_init(ln_budget *b, const linnet_model *model, uint64_t max_bytes, ln_memory *temporary,
                    ln_memory *kept) {
    uint64_t size = 0;
    for (int32_t i = 0; i < model->n_functions; ++i)
        size += (uint64_t)model->functions[i].n_nodes + (uint64_t)model->functions[i].n_values;
    *b = (ln_budget){.most_folded = least_folded + FOLDED_PER_BYTE * (uint64_t)model->file_size,
                     .most_work = least_work + WORK_PER_BYTE * (uint64_t)model->file_size,
                     .most_heavy = (uint64_t)model->file_size,
                     .most_nodes = least_nodes + PER_NODE * size};
    if (max_bytes == 0 || max_bytes > SIZE_MAX - beside) return;
    b->memory = (ln_memory_limit){.held = temporary->bytes, .most = (size_t)(max_bytes + beside)};
    if (b->most_folded > b->memory.most) b->most_folded = b->memory.most;
    temporary->limit = kept->limit = &b->memory;
}

linnet_status ln_budget_end(const ln_budget *b, ln_memory *kept, linnet_status status, linnet_error *error) {
    kept->limit = NULL;
    if (status != LINNET_OUT_OF_MEMORY || b->memory.refused == 0) return status;
    ln_fail(error, LINNET_TOO_LARGE, "planning needs more memory than linnet_plan_config.max_bytes allows");
    ln_expected(error, "at most %zu bytes, which is the limit plus 32 MiB", b->memory.most);
    ln_got(error, "%zu bytes or more at %llu nodes", b->memory.refused, (unsigned long long)b->nodes);
    return ln_hint(error, "raise linnet_plan_config.max_bytes, or reduce the nodes that calls and loops expand to");
}

linnet_status ln_check_bound(uint64_t bound, uint64_t bytes, linnet_error *error) {
    if (bound == 0 || bytes <= bound) return LINNET_OK;
    ln_fail(error, LINNET_TOO_LARGE, "the plan needs more memory than linnet_plan_config.max_bytes allows");
    ln_expected(error, "at most %llu bytes", (unsigned long long)bound);
    ln_got(error, "%llu bytes", (unsigned long long)bytes);
    return ln_hint(error, "raise linnet_plan_config.max_bytes, or use smaller shapes");
}
