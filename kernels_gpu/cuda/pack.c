/* pack.c - finds programs in a pack, a file of compiled programs that .ci/cuda_programs.py writes. The build may
 * contain a pack (-DLINNET_CUDA_PROGRAMS=FILE), and the option programs= names another one. A machine without NVRTC can
 * run only these programs. */
#include "kernels_gpu/cuda/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LG_PACK_FILE
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global lg_pack_begin\n"
        ".hidden lg_pack_begin\n"
        "lg_pack_begin:\n"
        ".incbin \"" LG_PACK_FILE "\"\n"
        ".global lg_pack_end\n"
        ".hidden lg_pack_end\n"
        "lg_pack_end:\n"
        ".previous\n");
extern const unsigned char lg_pack_begin[], lg_pack_end[];
#endif

/* A pack has a head, entries in ascending order of their hashes, and the code of each entry, which cuModuleLoadData can
 * load. All numbers are little-endian. */
typedef struct pack_head {
    char magic[8]; /* LNCUPACK */
    uint32_t count, cuda;
} pack_head;
typedef struct pack_entry {
    uint64_t hash[2], offset;
    uint32_t size, sum; /* size and CRC-32 of the code */
} pack_entry;

static pack_entry entry(const lg_programs *pack, size_t i) {
    pack_entry e;
    memcpy(&e, pack->data + sizeof(pack_head) + i * sizeof e, sizeof e);
    return e;
}

static bool comes_before(const uint64_t a[2], const uint64_t b[2]) {
    return a[0] < b[0] || (a[0] == b[0] && a[1] < b[1]);
}

static uint32_t crc32_of(const unsigned char *data, size_t size) {
    uint32_t sum = ~0u;
    for (size_t i = 0; i < size; ++i) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
    }
    return ~sum;
}

/* Returns the fault of the pack's head or entries; NULL if there is none. The checksum of a code is compared when the
 * code is used. */
static const char *fault_of(lg_programs *pack) {
    pack_head head;
    if (pack->size < sizeof head) return "it is shorter than a head";
    memcpy(&head, pack->data, sizeof head);
    if (memcmp(head.magic, "LNCUPACK", sizeof head.magic) != 0) return "it does not begin with LNCUPACK";
    if (head.count > (pack->size - sizeof head) / sizeof(pack_entry)) return "it is shorter than its list of programs";
    const size_t first = sizeof head + head.count * sizeof(pack_entry);
    for (size_t i = 0; i < head.count; ++i) {
        const pack_entry e = entry(pack, i), before = entry(pack, i > 0 ? i - 1 : 0);
        if (i > 0 && !comes_before(before.hash, e.hash)) return "its list of programs is out of order";
        if (e.size == 0 || e.offset < first || e.offset > pack->size || e.size > pack->size - e.offset)
            return "a program lies outside of it";
    }
    pack->count = head.count, pack->cuda = (int)head.cuda;
    return NULL;
}

/* Returns the bytes of a file; NULL: it cannot be read. The bytes are never freed, because devices live as long as the
 * process. */
static const unsigned char *read_whole(const char *path, size_t *size) {
    unsigned char *data = NULL;
    FILE *file = fopen(path, "rb");
    long length = -1;
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) length = ftell(file);
    if (length >= 0 && fseek(file, 0, SEEK_SET) == 0) data = malloc((size_t)length + 1);
    if (data != NULL && fread(data, 1, (size_t)length, file) != (size_t)length) {
        free(data);
        data = NULL;
    }
    fclose(file);
    *size = data != NULL ? (size_t)length : 0;
    return data;
}

bool lg_programs_open(const char *path, lg_programs *out, char *why, size_t size) {
    *out = (lg_programs){.size = 0};
    if (path[0] != 0) {
        out->data = read_whole(path, &out->size);
        if (out->data == NULL) {
            snprintf(why, size, "cannot read the file given with programs=: %s", path);
            return false;
        }
    } else {
#ifdef LG_PACK_FILE
        out->data = lg_pack_begin, out->size = (size_t)(lg_pack_end - lg_pack_begin);
#else
        return true;
#endif
    }
    const char *fault = fault_of(out);
    if (fault == NULL) return true;
    /* The fault comes first, because a long path may be cut off. */
    snprintf(why, size, "%s: %s is damaged, or was not written by .ci/cuda_programs.py", fault,
             path[0] != 0 ? path : "what liblinnet_cuda contains");
    if (path[0] != 0) free((void *)(uintptr_t)out->data);
    *out = (lg_programs){.size = 0};
    return false;
}

const unsigned char *lg_programs_find(const lg_programs *pack, const uint64_t hash[2]) {
    for (size_t low = 0, high = pack->count; low < high;) {
        const size_t middle = low + (high - low) / 2;
        const pack_entry e = entry(pack, middle);
        if (e.hash[0] == hash[0] && e.hash[1] == hash[1])
            return crc32_of(pack->data + e.offset, e.size) == e.sum ? pack->data + e.offset : NULL;
        if (comes_before(e.hash, hash))
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
