/* copy_layout.c - the layouts that a copy prefers, which depend on its kind: some kinds copy as fast in any layout,
 * others need not copy at all between certain layouts. */
#include "generated/op_table.h"

/* A transpose moves nothing if it only gives channels-last memory the shape of dense memory, or the reverse. Returns
 * the layout of the operand for which this is so, or LN_PREFER_FREE if there is none. */
static int free_transpose(const ln_copy_attributes *a, int rank) {
    if (rank < 3 || a->perm.n != rank || a->perm.v[0] != 0) return LN_PREFER_FREE;
    bool to_last = a->perm.v[rank - 1] == 1, to_first = a->perm.v[1] == rank - 1;
    for (int d = 1; d + 1 < rank; d++) to_last = to_last && a->perm.v[d] == d + 1;
    for (int d = 2; d < rank; d++) to_first = to_first && a->perm.v[d] == d - 1;
    return to_last ? LN_PREFER_CHANNELS_LAST : to_first ? LN_PREFER_DENSE : LN_PREFER_FREE;
}

int ln_layout_copy(const void *attributes, const ln_tensor *x, int input) {
    const ln_copy_attributes *a = attributes;
    switch (a->kind) {
    case LN_COPY_KIND_RESHAPE:
    case LN_COPY_KIND_SQUEEZE:
    case LN_COPY_KIND_UNSQUEEZE: return LN_PREFER_DENSE;
    case LN_COPY_KIND_TRANSPOSE: {
        const int wish = free_transpose(a, x != NULL ? x->rank : 0);
        if (input >= 0) return wish == LN_PREFER_FREE ? LN_PREFER_DENSE : wish;
        return wish == LN_PREFER_DENSE ? LN_PREFER_CHANNELS_LAST : LN_PREFER_DENSE;
    }
    case LN_COPY_KIND_CONCAT: return LN_PREFER_FOLLOW;
    default: return input <= 0 ? LN_PREFER_FOLLOW : LN_PREFER_DENSE;
    }
}
