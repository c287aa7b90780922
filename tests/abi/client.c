/* client.c - a program that uses every struct with a struct_size, each in a block of exactly the size that it was
 * compiled with. tests/test_abi_growth.py runs it with libraries of another version. With GROWN it is the newer side.
 * client MODEL.lnt FOLDER: MODEL has the signatures infer, grad and update/... of linnet.sync.signatures. */
#include "linnet_ext.h"
#include "linnet_sync.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static linnet_error error;
static int messages;

static void fail(const char *what, int line) {
    char text[1024];
    linnet_error_format(&error, text, sizeof text);
    fprintf(stderr, "client.c:%d: %s (last error: %s)\n", line, what, text);
    exit(1);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) fail(#condition, __LINE__);                                                                  \
    } while (0)

/* A struct on the heap, so that AddressSanitizer sees any access beyond the size that this program knows. */
#define NEW(type, name)                                                                                                \
    type *name = malloc(sizeof *name);                                                                                 \
    memset(name, 0xa5, sizeof *name);                                                                                  \
    type##_init(name);                                                                                                 \
    CHECK(name->struct_size == sizeof *name)

#ifdef GROWN
/* The older library sets the fields of an info that it does not know to 0, and refuses a config that uses them. */
#define FILLED(info) CHECK((info)->struct_size == sizeof *(info) && (info)->grown_number == 0 && !(info)->grown_text)
#define REFUSED(config, call)                                                                                          \
    do {                                                                                                               \
        (config)->grown_number = 7;                                                                                    \
        CHECK((call) == LINNET_INVALID_ARGUMENT && strstr(error.what, "does not know") != NULL);                       \
        (config)->grown_number = 0;                                                                                    \
    } while (0)
#else
#define FILLED(info) CHECK((info)->struct_size == sizeof *(info))
#define REFUSED(config, call)                                                                                          \
    do {                                                                                                               \
        const size_t size = (config)->struct_size;                                                                     \
        (config)->struct_size = sizeof(size_t);                                                                        \
        CHECK((call) == LINNET_INVALID_ARGUMENT && strstr(error.hint, "_init") != NULL);                               \
        (config)->struct_size = size;                                                                                  \
    } while (0)
#endif

static void count_message(void *context, int32_t level, const char *text) {
    CHECK(context == &messages && level >= LINNET_LOG_INFO && text[0] != 0);
    messages++;
}

static int nothing(linnet_user_call *call) { return call->struct_size < sizeof(size_t); }

static linnet_model *open_model(const char *path) {
    linnet_model *model = NULL;
    NEW(linnet_model_config, config);
    NEW(linnet_user_op, op);
    NEW(linnet_verified, found);
    const linnet_user_op *const ops[] = {op};
    op->name = "test.client.nothing";
    op->version = 1;
    op->most_inputs = op->least_outputs = op->most_outputs = 1;
    op->run = nothing;
    config->log = count_message;
    config->log_context = &messages;
    config->user_ops = ops;
    config->user_op_count = 1;
    REFUSED(config, linnet_model_open(path, config, &model, &error));
    REFUSED(op, linnet_model_open(path, config, &model, &error));
    CHECK(!linnet_model_open(path, config, &model, &error));
    CHECK(messages == 1); /* the weights were not checked */
    CHECK(!linnet_model_verify(model, LINNET_VERIFY_STRICT, found, &error));
    FILLED(found);
    CHECK(found->segments > 0 && found->bytes > 0);
    free(config), free(op), free(found);
    return model;
}

static void describe(linnet_model *model, int signature) {
    NEW(linnet_tensor_info, info);
    CHECK(!linnet_model_get_input(model, signature, 0, info));
    FILLED(info);
    CHECK(info->dtype == LINNET_F32 && info->bits == 32 && info->bytes > 0 && strcmp(info->layout, "dense") == 0);
    CHECK(!linnet_model_get_output(model, signature, 0, info));
    FILLED(info);
    CHECK(!linnet_model_get_variable(model, 0, info));
    FILLED(info);
    CHECK(linnet_model_get_variable(model, 1000, info) == LINNET_INVALID_ARGUMENT);
    free(info);
}

static void save_and_load(linnet_store *store, const char *path) {
    NEW(linnet_checkpoint_config, config);
    const char *const pairs[] = {"step", "3"};
    config->metadata = pairs;
    config->metadata_count = 1;
    REFUSED(config, linnet_store_save(store, path, config, &error));
    CHECK(!linnet_store_save(store, path, config, &error));
    CHECK(!linnet_store_load(store, path, &error));
    free(config);
}

static linnet_session *make_session(linnet_model *model, linnet_store *store, const char *signature) {
    linnet_plan *plan = NULL;
    linnet_session *session = NULL;
    NEW(linnet_plan_config, config);
    NEW(linnet_plan_info, info);
    NEW(linnet_step_info, step);
    NEW(linnet_tensor_info, tensor);
    NEW(linnet_session_config, how);
    config->signature = signature;
    config->threads = 1;
    config->passes = 1;
    config->precision = LINNET_PRECISION_TF32;
    REFUSED(config, linnet_plan_create(model, config, &plan, &error));
    CHECK(!linnet_plan_create(model, config, &plan, &error));
    CHECK(!linnet_plan_get_info(plan, info));
    FILLED(info);
    CHECK(info->steps > 0 && info->total > 0 && info->threads == 1 && info->precision == LINNET_PRECISION_TF32);
    CHECK(!linnet_plan_get_step(plan, 0, step));
    FILLED(step);
    CHECK(step->op[0] != 0 && step->runs == 0);
    CHECK(!linnet_plan_get_input(plan, 0, tensor));
    FILLED(tensor);
    CHECK(!linnet_plan_get_output(plan, 0, tensor));
    FILLED(tensor);
    NEW(linnet_plan_candidate, candidate);
    CHECK(!linnet_plan_get_candidate(plan, 0, 0, candidate));
    FILLED(candidate);
    NEW(linnet_plan_pass, pass);
    CHECK(!linnet_plan_get_pass(plan, 0, pass));
    FILLED(pass);
    CHECK(strcmp(pass->name, "expand") == 0 && pass->ran && pass->nodes_before == 0 && pass->nodes_after > 0);
    CHECK(candidate->kernel[0] != 0 && (candidate->refusal != 0) == (candidate->why[0] != 0));
    CHECK(linnet_plan_get_key(plan, 0, NULL, 0) > 0);
    NEW(linnet_packed, packed);
    if (linnet_plan_get_packed(plan, 0, NULL, packed) == LINNET_OK) { /* the references pack nothing */
        FILLED(packed);
        CHECK(packed->kernel[0] != 0 && packed->bytes > 0 && packed->key[0] != 0);
    }
    free(packed);
    free(candidate);
    free(pass);
    how->trace = 1;
    REFUSED(how, linnet_session_create(plan, store, how, &session, &error));
    CHECK(!linnet_session_create(plan, store, how, &session, &error));
    memset(linnet_session_input(session, 0), 0, 4);
    NEW(linnet_run_config, until);
    until->timeout_ns = (uint64_t)1 << 40;
    REFUSED(until, linnet_run_with(session, until, &error));
    CHECK(!linnet_run_with(session, until, &error));
    CHECK(!linnet_session_get_step(session, 0, step));
    FILLED(step);
    CHECK(step->runs == 1);
    CHECK(!linnet_session_get_output(session, 0, tensor));
    FILLED(tensor);
    linnet_plan_free(plan);
    free(config), free(info), free(step), free(tensor), free(how), free(until);
    return session;
}

static void *serve(void *server) {
    static linnet_error failure;
    return linnet_server_run(server, 0, &failure) ? &failure : NULL;
}

static void train(linnet_model *model, const char *address) {
    linnet_store *store = NULL;
    linnet_server *server = NULL;
    linnet_worker *worker = NULL;
    pthread_t thread;
    void *failed;
    char text[4096];
    size_t needed = 0;
    NEW(linnet_link_config, link);
    NEW(linnet_server_config, config);
    NEW(linnet_worker_config, with);
    NEW(linnet_worker_info, info);
    NEW(linnet_link_info, one);
    CHECK(config->staleness == -1 && with->worker == -1);
    link->insecure = 1;
    config->link = with->link = link;
    config->listen = &address;
    config->listen_count = 1;
    config->threads = 1;
    REFUSED(config, linnet_server_create(model, NULL, config, &server, &error));
    REFUSED(link, linnet_server_create(model, NULL, config, &server, &error));
    CHECK(!linnet_server_create(model, NULL, config, &server, &error));
    CHECK(!pthread_create(&thread, NULL, serve, server));
    const char *const servers[] = {linnet_server_address(server, 0)};
    CHECK(!linnet_store_create(model, NULL, &store, &error));
    REFUSED(with, linnet_worker_create(model, store, servers, 1, with, &worker, &error));
    REFUSED(link, linnet_worker_create(model, store, servers, 1, with, &worker, &error));
    REFUSED(link, linnet_sync_status(servers[0], link, text, sizeof text, &needed, &error));
    CHECK(!linnet_worker_create(model, store, servers, 1, with, &worker, &error));
    CHECK(!linnet_sync_status(servers[0], link, text, sizeof text, &needed, &error));
    linnet_session *session = make_session(model, store, "grad");
    CHECK(!linnet_worker_step(worker, session, NULL, 1.0, &error));
    CHECK(!linnet_worker_get_info(worker, info));
    FILLED(info);
    CHECK(info->step == 1 && info->applied == 1 && info->link_count == 1 && info->sent > 0);
    CHECK(!linnet_worker_get_link(worker, 0, one));
    FILLED(one);
    CHECK(one->connected == 1 && one->sent == info->sent && strcmp(one->address, servers[0]) == 0);
    CHECK(linnet_worker_get_link(worker, 1, one) == LINNET_INVALID_ARGUMENT);
    linnet_worker_free(worker);
    linnet_server_stop(server, LINNET_SYNC_END_JOB);
    CHECK(!pthread_join(thread, &failed) && !failed);
    linnet_server_free(server);
    linnet_session_free(session);
    linnet_store_free(store);
    free(link), free(config), free(with), free(info), free(one);
}

static void sum(void) {
    linnet_ring *ring = NULL;
    float x = 3;
    NEW(linnet_ring_config, config);
    REFUSED(config, linnet_ring_create(config, &ring, &error));
    CHECK(!linnet_ring_create(config, &ring, &error));
    CHECK(!linnet_ring_all_reduce(ring, &x, 1, LINNET_F32, LINNET_RING_SUM, &error) && x == 3);
    linnet_ring_free(ring);
    free(config);
}

int main(int argc, char **argv) {
    linnet_store *store = NULL;
    char path[1024];
    CHECK(argc == 3);
    linnet_model *model = open_model(argv[1]);
    describe(model, linnet_model_find_signature(model, "infer"));
    CHECK(!linnet_store_create(model, NULL, &store, &error));
    snprintf(path, sizeof path, "%s/checkpoint.lnt", argv[2]);
    save_and_load(store, path);
    linnet_session_free(make_session(model, store, "infer"));
    linnet_store_free(store);
    snprintf(path, sizeof path, "unix:%s/s", argv[2]);
    train(model, path);
    sum();
    linnet_model_free(model);
    puts("every struct");
    return 0;
}
