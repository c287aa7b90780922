/* test_store.c - variables: initial values, reads and writes by name, versions, lifetimes, and two threads at once.
 * A reader must never see half of a write: both threads use the same variable. */
#include "check.h"
#include "sample_model.h"

#include "model/store.h"
#include "linnet_ext.h"

#include <pthread.h>

static sample_model file;

static linnet_model *open_sample(void) {
    linnet_model *model = NULL;
    sample_make(&file);
    CHECK_INT(linnet_model_open_memory(file.w.bytes, file.size, LINNET_BORROW, NULL, &model, NULL), LINNET_OK);
    return model;
}

static void values(void) {
    linnet_model *model = open_sample();
    linnet_store *store = NULL, *other = NULL;
    linnet_error error;
    float two[2] = {0, 0};
    CHECK_INT(linnet_store_create(model, NULL, &store, &error), LINNET_OK);
    CHECK_INT(linnet_store_create(model, NULL, &other, &error), LINNET_OK);
    if (!store || !other) return;
    CHECK(linnet_store_bytes(store) >= 8);
    CHECK_INT(linnet_store_bytes(store), ln_store_bytes_for(model));
    CHECK_INT(linnet_store_read(store, "state", two, sizeof two, &error), LINNET_OK);
    CHECK(two[0] == 0.5f && two[1] == -0.25f);
    CHECK_INT((uintptr_t)ln_store_data(store, 0) % 64, 0);
    CHECK_INT(ln_store_version(store, 0), 0);
    two[0] = 7;
    CHECK_INT(linnet_store_write(store, "state", two, sizeof two, &error), LINNET_OK);
    CHECK_INT(ln_store_version(store, 0), 1);
    two[0] = 0;
    CHECK_INT(linnet_store_read(store, "state", two, sizeof two, NULL), LINNET_OK);
    CHECK(two[0] == 7);
    CHECK_INT(linnet_store_read(other, "state", two, sizeof two, NULL), LINNET_OK); /* another store, another state */
    CHECK(two[0] == 0.5f);
    CHECK_INT(linnet_store_read(store, "state", two, 4, &error), LINNET_WRONG_SHAPE);
    CHECK_TEXT(error.expected, "8 bytes");
    CHECK_TEXT(error.got, "4 bytes");
    float more[4] = {9, 9, 9, 9};
    CHECK_INT(linnet_store_write(store, "state", more, sizeof more, &error), LINNET_WRONG_SHAPE);
    CHECK_TEXT(error.got, "16 bytes");
    CHECK_INT(linnet_store_read(store, "state", more, sizeof more, &error), LINNET_WRONG_SHAPE);
    CHECK(more[0] == 9 && ln_store_version(store, 0) == 1);
    CHECK_TEXT(error.tensor, "state");
    CHECK_INT(linnet_store_write(store, "weight", two, 8, &error), LINNET_UNKNOWN_NAME);
    CHECK_TEXT(error.tensor, "weight");
    CHECK_INT(linnet_store_write(store, "weight", two, 8, NULL), LINNET_UNKNOWN_NAME);
    CHECK_INT(linnet_store_write(store, "state", NULL, 8, &error), LINNET_INVALID_ARGUMENT);
    CHECK_INT(linnet_store_write(NULL, "state", two, 8, &error), LINNET_INVALID_ARGUMENT);
    linnet_store_free(other);
    CHECK_INT(linnet_store_create(NULL, NULL, &other, &error), LINNET_INVALID_ARGUMENT);
    CHECK(other == NULL);
    CHECK(ln_store_model(store) == model);
    CHECK(linnet_store_data(store, "state", LINNET_READ, &error) == ln_store_data(store, 0));
    CHECK_INT(ln_store_version(store, 0), 1);
    CHECK(linnet_store_data(store, "state", LINNET_WRITE, NULL) == ln_store_data(store, 0));
    CHECK_INT(ln_store_version(store, 0), 2);
    CHECK(!linnet_store_data(store, "weight", LINNET_READ, &error));
    CHECK_INT(error.code, LINNET_UNKNOWN_NAME);
    CHECK(!linnet_store_data(NULL, "state", LINNET_READ, &error));
    CHECK_INT(error.code, LINNET_INVALID_ARGUMENT);
    linnet_model_free(model); /* the store keeps it alive */
    CHECK_INT(linnet_store_read(store, "state", two, sizeof two, &error), LINNET_OK);
    linnet_store_free(ln_store_retain(store));
    CHECK_INT(linnet_store_read(store, "state", two, sizeof two, &error), LINNET_OK);
    linnet_store_free(store);
    linnet_store_free(NULL);
}

typedef struct side {
    linnet_store *store;
    float sign;
    int torn;
} side;

static void *use(void *argument) {
    side *s = argument;
    for (int i = 1; i <= 3000; i++) {
        float two[2] = {s->sign * (float)i, s->sign * (float)i};
        if (linnet_store_write(s->store, "state", two, sizeof two, NULL)) s->torn++;
        if (linnet_store_read(s->store, "state", two, sizeof two, NULL) || two[0] != two[1]) s->torn++;
    }
    return NULL;
}

static void at_once(void) {
    linnet_model *model = open_sample();
    side sides[2] = {{NULL, 1, 0}, {NULL, -1, 0}};
    pthread_t threads[2];
    linnet_store *store = NULL;
    CHECK_INT(linnet_store_create(model, NULL, &store, NULL), LINNET_OK);
    linnet_model_free(model);
    for (int i = 0; i < 2; i++) {
        sides[i].store = ln_store_retain(store);
        CHECK_INT(pthread_create(&threads[i], NULL, use, &sides[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(sides[i].torn, 0);
        linnet_store_free(sides[i].store);
    }
    CHECK_INT(ln_store_version(store, 0), 6000);
    linnet_store_free(store);
}

/* Lets the k-th allocation fail, for every k: OUT_OF_MEMORY each time, and no leak. */
typedef struct limited {
    int left;
    size_t live;
} limited;

static void *limited_alloc(void *context, size_t size, size_t alignment) {
    limited *l = context;
    if (l->left-- <= 0) return NULL;
    l->live += size;
    return aligned_alloc(alignment, size);
}

static void limited_free(void *context, void *pointer, size_t size) {
    ((limited *)context)->live -= size;
    free(pointer);
}

static void without_memory(void) {
    limited l = {0, 0};
    linnet_allocator allocator = {&l, limited_alloc, limited_free};
    linnet_model *model = open_sample();
    int failures = 0;
    for (int k = 0; k < 100; k++) {
        linnet_store *store;
        linnet_error error;
        linnet_status status;
        l.left = k;
        status = linnet_store_create(model, &allocator, &store, &error);
        if (status == LINNET_OK) {
            CHECK_INT(l.live, linnet_store_bytes(store)); /* the store reports its size */
            linnet_store_free(store);
            CHECK_INT(l.live, 0);
            break;
        }
        failures++;
        CHECK_INT(status, LINNET_OUT_OF_MEMORY);
        CHECK(store == NULL);
        CHECK_INT(l.live, 0);
    }
    CHECK(failures >= 2);
    linnet_model_free(model);
}

int main(void) {
    values();
    at_once();
    without_memory();
    return check_end("test_store");
}
