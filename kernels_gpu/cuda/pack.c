/* pack.c - the programs that the build has compiled (-DLINNET_CUDA_PROGRAMS=FILE, which .ci/cuda_programs.py writes),
 * so that a machine without NVRTC runs the models that consist of them. */
#include "kernels_gpu/cuda/backend.h"

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

const unsigned char *lg_pack_of_programs(size_t *size) {
    *size = (size_t)(lg_pack_end - lg_pack_begin);
    return lg_pack_begin;
}
#else
const unsigned char *lg_pack_of_programs(size_t *size) {
    *size = 0;
    return NULL;
}
#endif
