/* standin.h - what the files of the stand-ins for libcuda and libnvrtc share. */
#ifndef STANDIN_H
#define STANDIN_H

#define _Alignas alignas
#include "kernels_gpu/cuda/cu.h"
#undef _Alignas
#include "image.h"

#include <cstdio>

#define STANDIN_EXPORT __attribute__((visibility("default")))

static inline unsigned long long standin_hash(const char *bytes, size_t size, unsigned kind) {
    unsigned long long hash = 0xcbf29ce484222325u + kind * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
        hash ^= kind > 1 ? hash >> 29 : 0;
    }
    return hash;
}

static inline void standin_nvrtc_wrong(const char *function, const char *what) {
    fprintf(stderr, "stand-in: %s: %s\n", function, what);
}

#endif
