/* depthwise.c - launches the kernel of depthwise.inc, for convolutions with one channel of x in each group. */
#include "kernels_gpu/common/kernels.h"
#include "kernels_gpu/common/launch.h"
#include "kernels_gpu/common/product.h"
#include "kernels_gpu/common/step.h"
#include "kernels_gpu/common/store.h"
#include "kernels_gpu/common/window.h"

#include <stdlib.h>
#include <string.h>

enum { OUTS = 4, MOST_KERNEL = 7 };

static bool open(const lg_step *s, lg_window *w) {
    const linnet_device_tensor *weights = &s->inputs[1];
    if (s->machine->compute == 0 || !lg_can_multiply(s) || weights->rank < 3 || weights->shape[1] != 1) return false;
    if (!lg_window_open(w, s, &s->inputs[0], &s->result, weights->shape + 2, false)) return false;
    if (lg_integer(s, "group", 1) != w->channels) return false;
    if (w->kernel[0] != 1 || w->stride[0] != 1 || w->pad[0] != 0 || w->in[0] != w->out[0] || w->in[0] != 1)
        return false;
    for (int d = 1; d < LG_SPACE; ++d)
        if (w->dilation[d] != 1 || w->kernel[d] > MOST_KERNEL || w->stride[d] > 2) return false;
    return lg_count(&s->result) > 0;
}

bool lg_can_depthwise(const lg_step *s) {
    lg_window w;
    return open(s, &w);
}

/* Packs constant weights with the channels last, as the lanes of a warp read them. */
static int64_t pack(lg_plan *plan, const lg_step *s, int64_t channels, int64_t taps) {
    const size_t size = (size_t)lg_bytes_of(s->inputs[1].dtype);
    const unsigned char *from = s->inputs[1].data;
    unsigned char *bytes = malloc((size_t)(channels * taps) * size);
    if (bytes == NULL) {
        plan->failed = true;
        return 0;
    }
    for (int64_t c = 0; c < channels; ++c)
        for (int64_t t = 0; t < taps; ++t)
            memcpy(bytes + (size_t)(t * channels + c) * size, from + (size_t)(c * taps + t) * size, size);
    const int64_t at = (int64_t)lg_pack(plan, bytes, (size_t)(channels * taps) * size);
    free(bytes);
    return at;
}

void lg_build_depthwise(const lg_step *s, lg_plan *plan) {
    lg_window w;
    lg_launch *launch = lg_add(plan, "lg_depthwise");
    if (launch == NULL || !open(s, &w)) {
        plan->failed = true;
        return;
    }
    const bool last = w.y_last, packs = last && s->inputs[1].constant && s->inputs[1].data != NULL;
    const int a = last ? 2 : 1, b = last ? 1 : 2; /* dimensions along and across the outputs of a thread */
    const int64_t x_step[] = {0, w.in[2] * w.x_x, w.x_x}, y_step[] = {0, w.out[2] * w.y_x, w.y_x};
    const int64_t runs = (w.out[a] + OUTS - 1) / OUTS, total = w.out_channels * runs * w.out[b] * w.batch;
    const int64_t packed = packs ? pack(plan, s, w.out_channels, w.kernel[1] * w.kernel[2]) : 0;
    lg_define(launch, "LAST", last);
    lg_define(launch, "OUTS", OUTS);
    lg_define(launch, "KERNEL_A", w.kernel[a]);
    lg_define(launch, "KERNEL_B", w.kernel[b]);
    lg_define(launch, "STRIDE_A", w.stride[a]);
    lg_define(launch, "STRIDE_B", w.stride[b]);
    lg_pass(launch, LG_INPUT, 0);
    lg_pass(launch, LG_INPUT, 1);
    lg_pass(launch, LG_INPUT, lg_absent(s, 2) ? 1 : 2);
    lg_pass(launch, LG_OUTPUT, 0);
    const int64_t numbers[] = {total,
                               w.out_channels,
                               w.out_channels / w.channels,
                               w.in[a],
                               w.in[b],
                               w.out[a],
                               w.out[b],
                               w.pad[a],
                               w.pad[b],
                               w.channels * w.in[1] * w.in[2],
                               w.x_c,
                               x_step[a],
                               x_step[b],
                               w.out_channels * w.out[1] * w.out[2],
                               w.y_c,
                               y_step[a],
                               y_step[b]};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) lg_pass_integer(launch, numbers[i]);
    lg_text *text = &launch->source;
    if (packs) {
        lg_put(text, "#define W_FROM ((LG_GLOBAL const W_T *)(lg_packed+lg_n%d))\n", lg_number(launch, packed));
        lg_put(text, "#define W_AT(c,b,a) (((b)*KERNEL_A+(a))*channels+(c))\n"); /* a is x, as in the weights */
    } else {
        lg_put(text, "#define W_FROM w\n#define W_AT(c,b,a) ((c)*(KERNEL_A*KERNEL_B)+%s)\n",
               last ? "(b)*KERNEL_A+(a)" : "(a)*KERNEL_B+(b)");
    }
    lg_define_product(plan, launch, s);
    lg_put_store(plan, launch, s);
    lg_put_file(launch, "depthwise");
    lg_range(launch, total, 1, 1);
    lg_local(launch, 128, 1, 1);
    plan->failed |= launch->source.failed;
}
