/* random.c - random numbers: the kernel of random.inc. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/step.h"

bool lg_can_random(const lg_step *s) {
    const linnet_device_tensor *y = &s->outputs[0];
    return !s->has_map && !lg_absent(s, 0) /* without a counter, the result is a constant */ &&
           (y->dtype == LINNET_F32 || y->dtype == LINNET_U32) && lg_count(y) > 0 && lg_count(y) <= INT32_MAX - 3;
}

void lg_build_random(const lg_step *s, lg_plan *plan) {
    const int64_t count = lg_count(&s->outputs[0]), seed = lg_integer(s, "seed", 0);
    lg_launch *launch = lg_add(plan, "lg_random");
    if (launch == NULL) return;
    lg_define_operand(launch, "Y", s->outputs[0].dtype);
    lg_define(launch, "KIND", lg_integer(s, "kind", 0));
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_OUTPUT, 0);
    const int64_t numbers[] = {count, seed, (int64_t)((uint64_t)seed >> 32), lg_integer(s, "stream", 0)};
    for (int i = 0; i < 4; ++i) lg_pass_integer(launch, numbers[i]);
    lg_put_file(launch, "random");
    lg_range(launch, (count + 3) / 4, 1, 1);
    plan->failed |= launch->source.failed;
}
