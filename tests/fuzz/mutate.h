/* mutate.h - changes a .lnt file at random in memory: bits, numbers, exchanged pieces, truncation. Mostly updates the
 * checksum, because otherwise nothing after the checksum test would ever be reached. */
#ifndef MUTATE_H
#define MUTATE_H

#include "base/crc32.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTANT_HEADER = 64, MUTANT_CHANGES = 4 };

typedef struct mutant {
    unsigned char *file, *bytes; /* the given file; the changed bytes, in an allocation of exactly `size` */
    size_t file_size, size;
    uint64_t state;
} mutant;

static inline uint64_t mutant_next(mutant *f) {
    uint64_t z = (f->state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline size_t mutant_below(mutant *f, size_t n) { return n ? (size_t)(mutant_next(f) % n) : 0; }

static inline void mutant_put(unsigned char *to, uint64_t value, int width) {
    for (int i = 0; i < width; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static inline uint64_t mutant_get(const unsigned char *from, int width) {
    uint64_t value = 0;
    for (int i = width; i-- > 0;) value = value << 8 | from[i];
    return value;
}

/* Chooses a place, mostly in the structure, because changed weights are only different weights. */
static inline size_t mutant_place(mutant *f) {
    size_t structure = (size_t)mutant_get(f->file + 24, 8);
    if (mutant_below(f, 8) && f->size > MUTANT_HEADER)
        return MUTANT_HEADER +
               mutant_below(f, structure < f->size - MUTANT_HEADER ? structure : f->size - MUTANT_HEADER);
    return mutant_below(f, f->size);
}

static inline void mutant_change(mutant *f) {
    static const uint64_t telling[] = {0,
                                       1,
                                       2,
                                       3,
                                       7,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x7fff,
                                       0xffff,
                                       0x7fffffff,
                                       0x80000000u,
                                       0xffffffffu,
                                       0x7fffffffffffffffull,
                                       0x8000000000000000ull,
                                       0xffffffffffffffffull,
                                       64,
                                       1 << 20};
    size_t at = mutant_place(f);
    int width = 1 << mutant_below(f, 4);
    switch (mutant_below(f, 6)) {
    case 0: f->bytes[at] ^= (unsigned char)(1u << mutant_below(f, 8)); break;
    case 1: f->bytes[at] = (unsigned char)mutant_next(f); break;
    case 2: /* replaces a number by an interesting one */
        at -= at % (size_t)width;
        if (at + (size_t)width <= f->size)
            mutant_put(f->bytes + at, telling[mutant_below(f, sizeof telling / sizeof *telling)], width);
        break;
    case 3: /* changes a number by 1 or by a small multiple of 4: offsets and counts */
        at -= at % (size_t)width;
        if (at + (size_t)width <= f->size) {
            uint64_t step = mutant_below(f, 2) ? 1 : 4 * (1 + mutant_below(f, 16));
            mutant_put(f->bytes + at, mutant_get(f->bytes + at, width) + (mutant_below(f, 2) ? step : 0 - step), width);
        }
        break;
    case 4: { /* splice: copies a piece from elsewhere */
        size_t from = mutant_place(f), length = 1 + mutant_below(f, 64);
        if (length > f->size - at) length = f->size - at;
        if (length > f->size - from) length = f->size - from;
        memmove(f->bytes + at, f->bytes + from, length);
        break;
    }
    default: { /* exchanges two numbers */
        size_t other = mutant_place(f);
        unsigned char keep[8];
        at -= at % (size_t)width;
        other -= other % (size_t)width;
        if (at + (size_t)width <= f->size && other + (size_t)width <= f->size) {
            memcpy(keep, f->bytes + at, (size_t)width);
            memmove(f->bytes + at, f->bytes + other, (size_t)width);
            memcpy(f->bytes + other, keep, (size_t)width);
        }
    }
    }
}

static inline void mutant_make(mutant *f) {
    int changes = 1 + (int)mutant_below(f, MUTANT_CHANGES);
    f->size = mutant_below(f, 16) ? f->file_size : mutant_below(f, f->file_size + 1); /* sometimes truncated */
    f->bytes = aligned_alloc(64, (f->size + 63) / 64 * 64 + 64);
    if (!f->bytes) exit(3);
    memcpy(f->bytes, f->file, f->size);
    for (int i = 0; i < changes && f->size; i++) mutant_change(f);
    if (f->size > MUTANT_HEADER &&
        mutant_below(f, 8)) { /* mostly updates the checksum, or nothing after the checksum test is ever reached */
        uint64_t structure = mutant_get(f->bytes + 24, 8);
        memcpy(f->bytes, f->file, 24);
        mutant_put(f->bytes + 40, f->size, 8);
        if (structure > f->size - MUTANT_HEADER) {
            structure = f->size - MUTANT_HEADER;
            mutant_put(f->bytes + 24, structure, 8);
        }
        mutant_put(f->bytes + 32, ln_crc32(0, f->bytes + MUTANT_HEADER, (size_t)structure), 4);
    }
}

static inline int mutant_load(mutant *f, const char *path) {
    FILE *file = fopen(path, "rb");
    long size;
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < MUTANT_HEADER || fseek(file, 0, SEEK_SET)) return 0;
    f->file_size = (size_t)size;
    f->file = malloc(f->file_size);
    size = f->file && fread(f->file, 1, f->file_size, file) == f->file_size;
    fclose(file);
    return (int)size;
}

#endif
