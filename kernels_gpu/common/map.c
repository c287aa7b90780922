/* map.c - launches map, cast, quantize and dequantize. The kernel executes the text that the host has written for the
 * program, for each element. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"

bool lg_can_map(const lg_step *s) {
    return s->has_map && !s->has_epilogue && s->machine->host->step_map_source != NULL && lg_can_store(s);
}

bool lg_can_convert(const lg_step *s) {
    linnet_source_options options;
    size_t length = 0;
    linnet_source_options_init(&options);
    options.language = s->machine->language;
    options.native = 1;
    return s->is_conversion && lg_can_map(s) &&
           s->machine->host->step_map_source(s->step, &options, NULL, 0, &length) == LINNET_OK;
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
