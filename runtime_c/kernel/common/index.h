/* index.h - finds the elements of strided tensors one by one, for the reference kernels.
 * Elements are numbered in logical row-major order. Strides and layout may be arbitrary. */
#ifndef LN_INDEX_H
#define LN_INDEX_H

#include "base/types.h"

/* Returns where the element with row-major number `index` is, in elements from the start. All dims must be known. */
static inline int64_t ln_offset_of(const ln_tensor *t, int64_t index) {
    int64_t offset = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        offset += index % t->dims[d] * t->strides[d];
        index /= t->dims[d];
    }
    return offset;
}

/* Returns where an element is in a tensor that is broadcast by NumPy's rules to the shape `dims` of rank `rank`.
 * `index` counts the elements of that shape. */
static inline int64_t ln_offset_broadcast(const ln_tensor *t, const int64_t *dims, int rank, int64_t index) {
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; d--) {
        int own = d - (rank - t->rank);
        if (own >= 0 && t->dims[own] != 1) offset += index % dims[d] * t->strides[own];
        index /= dims[d];
    }
    return offset;
}

/* Copies one element of `size` bytes. Both offsets are in elements. */
static inline void ln_copy_element(void *to, int64_t to_offset, const void *from, int64_t from_offset, size_t size) {
    unsigned char *d = (unsigned char *)to + to_offset * (int64_t)size;
    const unsigned char *s = (const unsigned char *)from + from_offset * (int64_t)size;
    for (size_t i = 0; i < size; i++) d[i] = s[i];
}

/* Copies the rank and the dims of a to out, also those that are unknown. The dtype of out stays as it is. */
static inline void ln_same_shape(const ln_tensor *a, ln_tensor *out) {
    out->rank = a->rank;
    for (int d = 0; d < a->rank; d++) out->dims[d] = a->dims[d];
}

/* Returns element i >= 0 of a dense integer operand whose data is known, or 0 if the operand has fewer elements. */
static inline int64_t ln_known_int(const ln_tensor *t, int64_t i) {
    return i < ln_count(t) ? ln_load_i64(t->data, t->dtype, i) : 0;
}

/* Tells whether the dimensions from number `from` on form contiguous blocks of memory. */
static inline bool ln_dense_tail(const ln_tensor *t, int from) {
    int64_t stride = 1;
    for (int d = t->rank - 1; d >= from; d--) {
        if (t->dims[d] != 1 && t->strides[d] != stride) return false;
        stride *= t->dims[d];
    }
    return true;
}

#endif
