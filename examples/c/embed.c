/* embed.c - linnet inside a C program: opens a model, runs it on one input, prints the most likely class.
 *
 *   cc -std=c99 embed.c -Iruntime_c/include build/liblinnet.a -lm -lpthread -o embed
 *   ./embed model.lnt input.f32        input.f32 has the model's first input as raw little-endian floats
 */
#include <stdio.h>

#include "linnet.h"

static int complain(const linnet_error *error) {
    char text[512];
    linnet_error_format(error, text, sizeof text);
    fprintf(stderr, "embed: %s\n", text);
    return 1;
}

static int classify(linnet_session *session, const linnet_plan *plan, FILE *input) {
    linnet_error error;
    linnet_tensor_info in, out;
    const float *scores;
    size_t i, best = 0;
    linnet_tensor_info_init(&in);
    linnet_plan_get_input(plan, 0, &in);
    /* The session's own buffer is filled in place: no copy. */
    if (fread(linnet_session_input(session, 0), 1, in.bytes, input) != in.bytes) {
        fprintf(stderr, "embed: the input file is too short; %s has %lu bytes\n", in.name, (unsigned long)in.bytes);
        return 1;
    }
    if (linnet_run(session, &error)) return complain(&error);
    linnet_tensor_info_init(&out);
    linnet_session_get_output(session, 0, &out);
    scores = linnet_session_output(session, 0);
    for (i = 1; i < out.bytes / sizeof *scores; i++)
        if (scores[i] > scores[best]) best = i;
    printf("class %lu, score %.3f\n", (unsigned long)best, scores[best]);
    return 0;
}

int main(int count, char **arguments) {
    linnet_model *model = NULL;
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    linnet_error error;
    int status = 1;
    FILE *input = count == 3 ? fopen(arguments[2], "rb") : NULL;
    if (!input)
        fprintf(stderr, "embed: usage: embed MODEL.lnt INPUT.f32; INPUT.f32 must be a readable file of raw floats\n");
    else if (linnet_model_open(arguments[1], NULL, &model, &error) || linnet_plan_create(model, NULL, &plan, &error) ||
             linnet_session_create(plan, NULL, NULL, &session, &error))
        complain(&error);
    else
        status = classify(session, plan, input);
    if (input) fclose(input);
    linnet_session_free(session);
    linnet_plan_free(plan);
    linnet_model_free(model);
    return status;
}
