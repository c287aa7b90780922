/* mock_queue.c - handles, settings and queues of the mock device. One lock guards everything; jobs run without it, so
 * that ThreadSanitizer sees every access of a job to memory that the host should not touch yet. */
#define _POSIX_C_SOURCE 200809L
#include "mock_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { SLOTS = 1 << 16 };

typedef struct job {
    struct job *next;
    int (*run)(const void *argument);
    mock_event *record, *follow; /* instead of `run` */
    uint64_t ticket;             /* of the event */
    _Alignas(16) char argument[];
} job;

struct mock_queue {
    pthread_t thread;
    job *first, **last;
    bool stop, busy;
    int failure;
    uint64_t noise;
};

struct mock_event {
    uint64_t asked, done;
    int code;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int64_t numbers[MOCK_NUMBER_COUNT];
static int calls[MOCK_CALLBACK_COUNT];
static struct {
    void *object;
    linnet_handle handle;
} slots[SLOTS];
static uint64_t salt;

int64_t mock_value(enum mock_number number) {
    pthread_mutex_lock(&lock);
    const int64_t value = numbers[number];
    pthread_mutex_unlock(&lock);
    return value;
}

void mock_count(enum mock_number number, int64_t by) {
    pthread_mutex_lock(&lock);
    numbers[number] += by;
    pthread_mutex_unlock(&lock);
}

static int number_of(const char *name) {
    static const char *const names[] = {
#define X(name) #name,
        MOCK_NUMBERS(X)
#undef X
    };
    for (int i = 0; i < MOCK_NUMBER_COUNT; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

/* For tests: returns the number of that name and, if `set` is not 0, changes it. -1 if there is none. */
EXPORT int64_t mock_number(const char *name, int set, int64_t value) {
    const int i = number_of(name);
    if (i < 0) return -1;
    pthread_mutex_lock(&lock);
    const int64_t before = numbers[i];
    if (set) numbers[i] = value;
    if (set && i == MOCK_fail_at) memset(calls, 0, sizeof calls);
    pthread_mutex_unlock(&lock);
    if (set && (i == MOCK_in_file || i == MOCK_lends || i == MOCK_pinned)) mock_changed();
    return before;
}

/* For tests: the name of a callback that can fail; NULL past the end. */
EXPORT const char *mock_callback_name(int callback) {
    static const char *const names[] = {
#define X(name) #name,
        MOCK_CALLBACKS(X)
#undef X
    };
    return callback >= 0 && callback < MOCK_CALLBACK_COUNT ? names[callback] : NULL;
}

int mock_fails(enum mock_callback callback) {
    pthread_mutex_lock(&lock);
    const bool now = ++calls[callback] == numbers[MOCK_fail_at] && numbers[MOCK_fail] == (int64_t)callback;
    numbers[MOCK_failed] += now;
    pthread_mutex_unlock(&lock);
    return now ? 1 + (int)callback : 0;
}

int mock_misused(void) {
    mock_count(MOCK_misuse, 1);
    return MOCK_MISUSED;
}

uint64_t mock_hash(const char *text, int64_t with) {
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)(mock(seed) * 7919 + with);
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    hash ^= hash >> 29;
    hash *= UINT64_C(0xBF58476D1CE4E5B9);
    return hash ^ hash >> 32;
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

linnet_handle mock_add(enum mock_kind kind, void *object) {
    linnet_handle made = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < SLOTS && made == 0; i++)
        if (slots[i].object == NULL) {
            salt += UINT64_C(0x9E3779B97F4A7C15);
            made = (salt & ~UINT64_C(0xFFFFFF)) | (uint64_t)kind << 16 | i;
            slots[i].object = object;
            slots[i].handle = made;
            numbers[MOCK_live]++;
        }
    pthread_mutex_unlock(&lock);
    return made;
}

static void *take(enum mock_kind kind, linnet_handle handle, bool remove) {
    const uint32_t i = handle & 0xFFFF;
    void *object = NULL;
    pthread_mutex_lock(&lock);
    if (handle != 0 && slots[i].handle == handle && (handle >> 16 & 0xFF) == kind) object = slots[i].object;
    if (object == NULL) numbers[MOCK_misuse]++;
    if (object != NULL && remove) {
        slots[i].object = NULL;
        slots[i].handle = 0;
        numbers[MOCK_live]--;
    }
    pthread_mutex_unlock(&lock);
    return object;
}

void *mock_get(enum mock_kind kind, linnet_handle handle) { return take(kind, handle, false); }
void *mock_remove(enum mock_kind kind, linnet_handle handle) { return take(kind, handle, true); }

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static void nap(mock_queue *queue) {
    const int64_t most = mock(delay);
    queue->noise = queue->noise * UINT64_C(6364136223846793005) + 1442695040888963407u;
    if (most <= 0) return;
    const struct timespec time = {0, (long)((queue->noise >> 33) % (uint64_t)most) * 1000};
    nanosleep(&time, NULL);
}

static void *work(void *argument) {
    mock_queue *queue = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (queue->first == NULL && !queue->stop) pthread_cond_wait(&changed, &lock);
        job *next = queue->first;
        if (next == NULL) break;
        queue->busy = true;
        queue->first = next->next;
        if (queue->first == NULL) queue->last = &queue->first;
        while (next->follow != NULL && next->follow->done < next->ticket) pthread_cond_wait(&changed, &lock);
        const bool runs = next->run != NULL && queue->failure == 0;
        pthread_mutex_unlock(&lock);
        nap(queue);
        int code = runs ? mock_fails(MOCK_WORK) : 0;
        if (runs && code == 0) code = next->run(next->argument);
        pthread_mutex_lock(&lock);
        if (code != 0 && queue->failure == 0) queue->failure = code;
        if (next->record != NULL) {
            next->record->done = next->ticket;
            next->record->code = queue->failure;
        }
        queue->busy = queue->first != NULL;
        pthread_cond_broadcast(&changed);
        free(next);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

mock_queue *mock_queue_new(void) {
    mock_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return NULL;
    queue->last = &queue->first;
    queue->noise = (uint64_t)mock(seed) + 1;
    if (pthread_create(&queue->thread, NULL, work, queue) == 0) return queue;
    free(queue);
    return NULL;
}

void mock_queue_free(mock_queue *queue) {
    pthread_mutex_lock(&lock);
    if (queue->busy || queue->first != NULL) numbers[MOCK_misuse]++; /* `close` comes when no work is in the queue */
    queue->stop = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(queue->thread, NULL);
    free(queue);
}

static void enqueue(mock_queue *queue, job *made) { /* with the lock held */
    *queue->last = made;
    queue->last = &made->next;
    queue->busy = true;
    pthread_cond_broadcast(&changed);
}

static job *new_job(size_t size) {
    job *made = calloc(1, sizeof *made + size);
    if (made == NULL) abort();
    return made;
}

void mock_submit(mock_queue *queue, int (*run)(const void *argument), const void *argument, size_t size) {
    job *made = new_job(size);
    made->run = run;
    memcpy(made->argument, argument, size);
    pthread_mutex_lock(&lock);
    enqueue(queue, made);
    pthread_mutex_unlock(&lock);
}

bool mock_busy(mock_queue *queue) {
    pthread_mutex_lock(&lock);
    const bool busy = queue->busy;
    pthread_mutex_unlock(&lock);
    return busy;
}

int mock_queue_finish(mock_queue *queue) {
    pthread_mutex_lock(&lock);
    while (queue->busy) pthread_cond_wait(&changed, &lock);
    const int code = queue->failure;
    queue->failure = 0;
    pthread_mutex_unlock(&lock);
    return code;
}

mock_event *mock_event_new(void) { return calloc(1, sizeof(mock_event)); }
void mock_event_free(mock_event *event) { free(event); }

void mock_event_record(mock_queue *queue, mock_event *event) {
    job *made = new_job(0);
    made->record = event;
    pthread_mutex_lock(&lock);
    made->ticket = ++event->asked;
    enqueue(queue, made);
    pthread_mutex_unlock(&lock);
}

int mock_event_wait(mock_event *event) {
    pthread_mutex_lock(&lock);
    if (event->asked == 0) numbers[MOCK_misuse]++;
    while (event->done < event->asked) pthread_cond_wait(&changed, &lock);
    const int code = event->code;
    pthread_mutex_unlock(&lock);
    return code;
}

int mock_event_wait_until(mock_event *event, uint64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&lock);
    if (event->asked == 0) numbers[MOCK_misuse]++;
    while (event->done < event->asked)
        if (pthread_cond_timedwait(&changed, &lock, &until) != 0) break;
    const int code = event->done < event->asked ? LINNET_DEVICE_PENDING : event->code;
    pthread_mutex_unlock(&lock);
    return code;
}

void mock_follow(mock_queue *queue, mock_event *event) {
    job *made = new_job(0);
    made->follow = event;
    pthread_mutex_lock(&lock);
    made->ticket = event->asked;
    enqueue(queue, made);
    pthread_mutex_unlock(&lock);
}
