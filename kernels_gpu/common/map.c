/* map.c - maps: the block of the program, for each element. */
#include "kernels_gpu/common/gpu.h"

bool lg_can_map(const lg_step *s) {
    return s->has_map && !s->has_epilogue && s->machine->host->step_map_source != NULL && lg_can_store(s);
}

void lg_build_map(const lg_step *s, lg_plan *plan) {
    lg_launch *launch = lg_add(plan, "lg_map");
    if (launch == NULL) return;
    const int64_t count = lg_count(&s->outputs[0]);
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_pass(launch, LG_OUTPUT, 0);
    lg_pass_integer(launch, count);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, "map");
    lg_range(launch, count, 1, 1);
}
