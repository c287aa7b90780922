/* main.c - registers the op of crop.c with a model, and runs the model on 0, 1, 2, ...
 *
 *     cd examples/user_op
 *     cc -I../../runtime_c/include main.c crop.c ../../build/liblinnet.a -lm -lpthread -o crop
 *     ./crop crop.lnt */
#include "linnet_ext.h"

#include <stdio.h>

const linnet_user_op *const *linnet_extension_user_ops(int *count); /* of crop.c */

static int complain(const linnet_error *error) {
    char text[512];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "crop: %s\n", text);
    return 1;
}

static int run(linnet_session *session, const linnet_plan *plan) {
    linnet_error error;
    linnet_tensor_info in, out;
    float *x = linnet_session_input(session, 0);
    const float *y;
    size_t i;
    linnet_tensor_info_init(&in);
    linnet_tensor_info_init(&out);
    linnet_plan_get_input(plan, 0, &in);
    for (i = 0; i < in.bytes / sizeof *x; i++) x[i] = (float)i;
    if (linnet_run(session, &error)) return complain(&error);
    linnet_session_get_output(session, 0, &out);
    y = linnet_session_output(session, 0);
    for (i = 0; i < out.bytes / sizeof *y; i++) printf("%g%s", y[i], i + 1 < out.bytes / sizeof *y ? " " : "\n");
    return 0;
}

int main(int count, char **arguments) {
    linnet_model *model = NULL;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_error error;
    linnet_model_config config;
    int ops = 0, status;
    if (count != 2) {
        fprintf(stderr, "usage: crop model.lnt\n");
        return 2;
    }
    linnet_model_config_init(&config);
    config.user_ops = linnet_extension_user_ops(&ops);
    config.user_op_count = ops;
    if (linnet_model_open(arguments[1], &config, &model, &error) || linnet_plan_create(model, NULL, &plan, &error) ||
        linnet_session_create(plan, NULL, NULL, &session, &error))
        status = complain(&error);
    else
        status = run(session, plan);
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_model_free(model);
    return status;
}
