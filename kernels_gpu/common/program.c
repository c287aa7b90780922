/* program.c - writes the whole text of a program, and keeps the list of compiled programs of a device. */
#include "kernels_gpu/common/program.h"
#include "kernels_gpu/common/text.h"

#include <stdlib.h>

void lg_programs_init(lg_program_list *list) {
    pthread_mutex_init(&list->lock, NULL);
    list->first = NULL;
}

void *lg_program_find(lg_program_list *list, const uint64_t hash[2]) {
    pthread_mutex_lock(&list->lock);
    const lg_program *p = list->first;
    while (p != NULL && (p->hash[0] != hash[0] || p->hash[1] != hash[1])) p = p->next;
    pthread_mutex_unlock(&list->lock);
    return p != NULL ? p->code : NULL;
}

bool lg_program_keep(lg_program_list *list, const uint64_t hash[2], void *code) {
    lg_program *p = malloc(sizeof *p);
    if (p == NULL) return false;
    *p = (lg_program){.hash = {hash[0], hash[1]}, .code = code};
    pthread_mutex_lock(&list->lock);
    p->next = list->first;
    list->first = p;
    pthread_mutex_unlock(&list->lock);
    return true;
}

void lg_hash(const char *text, uint64_t out[2]) {
    uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u; /* FNV-1a, and a sum that is multiplied and rotated */
    for (const unsigned char *at = (const unsigned char *)text; *at != 0; ++at) {
        a = (a ^ *at) * 0x100000001b3u;
        b = (b + *at) * 0xff51afd7ed558ccdu;
        b = b << 31 | b >> 33;
    }
    out[0] = a, out[1] = b;
}

char *lg_whole_text(const lg_machine *machine, const lg_launch *launch) {
    enum { USUAL = 32768 }; /* longer than most preludes, so that the host writes a prelude only once */
    linnet_source_options options;
    const linnet_host *host = machine->host;
    size_t length = 0;
    lg_text uses = {0}, text = {0};
    char *prelude = malloc(USUAL);
    linnet_source_options_init(&options);
    options.language = machine->language;
    options.native = 1;
    /* The functions that the dialect uses. */
    lg_put_text(&uses, "ln_f32_to_bf16 ln_f16_to_f32 ln_bf16_to_f32 ln_f32_to_f16\n");
    lg_put_bytes(&uses, launch->source.at, launch->source.length);
    bool written =
        prelude != NULL && !uses.failed && host->map_prelude(&options, uses.at, prelude, USUAL, &length) == LINNET_OK;
    if (written && length >= USUAL) {
        free(prelude);
        prelude = malloc(length + 1);
        written = prelude != NULL && host->map_prelude(&options, uses.at, prelude, length + 1, &length) == LINNET_OK;
    }
    if (written) {
        lg_put_text(&text, prelude);
        lg_put_text(&text, lg_files[0].text);
        lg_put_bytes(&text, launch->source.at, launch->source.length);
    }
    free(prelude);
    lg_free(&uses);
    if (text.failed) lg_free(&text);
    return text.at;
}
