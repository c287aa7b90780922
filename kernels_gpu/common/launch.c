/* launch.c - builds launches: definitions, arguments, ranges. */
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/text.h"

#include <stdlib.h>
#include <string.h>

void lg_plan_free(lg_plan *plan) {
    for (int i = 0; i < plan->n; ++i) {
        lg_free(&plan->launches[i].source);
        lg_free(&plan->launches[i].extras);
    }
    free(plan->launches);
    lg_free(&plan->packed);
    *plan = (lg_plan){0};
}

lg_launch *lg_add(lg_plan *plan, const char *kernel) {
    lg_launch *grown = realloc(plan->launches, (size_t)(plan->n + 1) * sizeof *grown);
    if (grown == NULL) {
        plan->failed = true;
        return NULL;
    }
    plan->launches = grown;
    lg_launch *launch = &grown[plan->n++];
    *launch = (lg_launch){.kernel = kernel, .global = {1, 1, 1}, .local = {64, 1, 1}};
    launch->source.ignores = launch->extras.ignores = plan->sizes_only;
    return launch;
}

void lg_range(lg_launch *launch, int64_t x, int64_t y, int64_t z) {
    launch->global[0] = (size_t)x, launch->global[1] = (size_t)y, launch->global[2] = (size_t)z;
}

void lg_local(lg_launch *launch, size_t x, size_t y, size_t z) {
    launch->local[0] = x, launch->local[1] = y, launch->local[2] = z;
}

static lg_argument *argument(lg_launch *launch, lg_kind kind) {
    if (launch->n_arguments == LG_MOST_ARGUMENTS) {
        launch->source.failed = true;
        launch->n_arguments--;
    }
    lg_argument *a = &launch->arguments[launch->n_arguments++];
    *a = (lg_argument){.kind = (int32_t)kind};
    return a;
}

void lg_pass(lg_launch *launch, lg_kind kind, int index) {
    lg_argument *a = argument(launch, kind);
    a->index = index;
}
void lg_pass_integer(lg_launch *launch, int64_t value) { argument(launch, LG_INTEGER)->integer = (int32_t)value; }
void lg_pass_real(lg_launch *launch, double value) { argument(launch, LG_REAL)->real = (float)value; }

void lg_pass_map(lg_launch *launch, const lg_tensor_map *map) {
    if (launch->n_maps == LG_MOST_MAPS) {
        launch->source.failed = true;
        return;
    }
    argument(launch, LG_MAP)->index = launch->n_maps;
    launch->maps[launch->n_maps++] = *map;
}

int lg_number(lg_launch *launch, int64_t value) {
    lg_put(&launch->extras, ",const int lg_n%d", launch->n_numbers);
    lg_pass_integer(launch, value);
    return launch->n_numbers++;
}

int lg_real_number(lg_launch *launch, double value) {
    lg_put(&launch->extras, ",const float lg_r%d", launch->n_numbers);
    lg_pass_real(launch, value);
    return launch->n_numbers++;
}

void lg_define(lg_launch *launch, const char *name, int64_t value) {
    lg_put(&launch->source, "#define %s %lld\n", name, (long long)value);
}

void lg_define_operand(lg_launch *launch, const char *name, int dtype) {
    const char *type = lg_type_of(dtype);
    lg_put(&launch->source, "#define %s_T %s\n", name, type != NULL ? type : "ln_u8");
    lg_put(&launch->source, "#define %s_GET(p,i) LG_GET_%s(p,i)\n#define %s_PUT(p,i,v) LG_PUT_%s(p,i,v)\n", name,
           lg_word_of(dtype), name, lg_word_of(dtype));
}

size_t lg_pack(lg_plan *plan, const void *bytes, size_t size) {
    static const char zeros[16] = {0};
    lg_put_bytes(&plan->packed, zeros, (16 - plan->packed.length % 16) % 16);
    const size_t at = plan->packed.length;
    lg_put_bytes(&plan->packed, bytes, size);
    plan->failed |= plan->packed.failed;
    return at;
}

void lg_check_indices(lg_plan *plan, int64_t size) {
    static const int32_t none[2] = {0, 0};
    plan->status = lg_pack(plan, none, sizeof none);
    plan->checks = true;
    plan->check_size = size;
}

void lg_put_file(lg_launch *launch, const char *name) {
    const lg_file *file = lg_files + 1;
    while (file->name != NULL && strcmp(file->name, name) != 0) ++file;
    if (file->name != NULL)
        lg_put_text(&launch->source, file->text);
    else
        launch->source.failed = true;
}
