/* mock_device.c - an asynchronous device on public headers alone. It runs any op with the kernels of the CPU, on a
 * thread of its own, with random delays, claims of several steps and a private layout, and fails on request. */
#include "mock_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The private layout: the elements in reverse order, in whole groups of four. */
enum { REVERSED = 0x7E1, CANARY = 64, PACKING = 64, DEVICES = 2 };

typedef struct buffer {
    unsigned char *memory; /* between two canaries, unless it is imported */
    uint64_t bytes;
    bool imported, mapped, constant;
    bool lent; /* imported, and the host has released it */
} buffer;

typedef struct state {
    uint64_t ns; /* pretended time of the last execution */
} state;

static const linnet_device *device_of(void *context);

static uint64_t round_up(uint64_t bytes) { return (bytes + PACKING - 1) / PACKING * PACKING; }

static linnet_device_tensor input_of(const linnet_step *step, int i) {
    linnet_device_tensor t;
    linnet_device_tensor_init(&t);
    if (linnet_step_get_input(step, i, &t) != LINNET_OK) mock_misused();
    return t;
}

static linnet_device_tensor output_of(const linnet_step *step, int i) {
    linnet_device_tensor t;
    linnet_device_tensor_init(&t);
    if (linnet_step_get_output(step, i, &t) != LINNET_OK) mock_misused();
    return t;
}

static uint64_t count_of(const linnet_device_tensor *t) {
    uint64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= (uint64_t)t->shape[d];
    return count;
}

static uint64_t element(const linnet_device_tensor *t) { return linnet_dtype_size(t->dtype); }
static uint64_t dense_bytes(const linnet_device_tensor *t) {
    return t->layout == 0 ? t->bytes : count_of(t) * element(t);
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static int limits(void *context, linnet_device_limits *out) {
    (void)context;
    out->alignment = 256;
    out->padding = (uint64_t)mock(padding);
    out->largest_buffer = (uint64_t)mock(largest);
    out->epilogues = (int32_t)mock(epilogues);
    out->host_visible = (int32_t)mock(visible);
    out->shared = (int32_t)mock(shared);
    out->in_place = (int32_t)mock(in_place);
    out->import_alignment = mock(pinned) ? 256 : 0;
    out->bodies = (int32_t)mock(hostile); /* it reads them, and then says that it cannot run them */
    return mock_fails(MOCK_LIMITS);
}

/* Reads the dimensions and, of a constant, its bytes. */
static double constant_sum(linnet_device_tensor t) {
    double sum = t.dtype != LINNET_NONE ? (double)count_of(&t) + t.name[0] : 0;
    for (uint64_t i = 0; t.data != NULL && i < t.bytes; i++) sum += ((const unsigned char *)t.data)[i];
    return sum;
}

static void inspect_body(const linnet_body *body);

/* Reads everything that a device can ask about a step. A sanitizer sees what is not there. */
static void inspect(const linnet_step *step) {
    static const char *const names[] = {"kind", "axis", "axes",    "shape",   "pads",   "kernel", "alpha",
                                        "mode", "how",  "program", "strides", "factor", "floats", "sizes"};
    linnet_device_tensor result;
    linnet_map program;
    linnet_map_opcode opcode;
    linnet_step_counts counts;
    volatile double sum = 0;
    linnet_device_tensor_init(&result);
    linnet_map_init(&program);
    linnet_map_opcode_init(&opcode);
    linnet_step_counts_init(&counts);
    sum += linnet_step_op(step)[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int count = 0;
        const int64_t *integers = linnet_step_integers(step, names[i], &count);
        for (int k = 0; integers != NULL && k < count; k++) sum += (double)integers[k];
        const double *floats = linnet_step_floats(step, names[i], &count);
        for (int k = 0; floats != NULL && k < count; k++) sum += floats[k];
    }
    if (linnet_step_precision(step) < LINNET_PRECISION_F32 || linnet_step_precision(step) > LINNET_PRECISION_TF32)
        mock_misused();
    if (linnet_step_get_counts(step, &counts) != LINNET_OK) mock_misused();
    if (!(counts.macs >= 0 && counts.operations >= 0 && counts.read >= 0 && counts.written >= 0 && counts.cpu_ns >= 0))
        mock_misused();
    if (linnet_step_get_result(step, &result) == LINNET_OK) sum += (double)count_of(&result);
    float scales[4] = {0};
    size_t length = 0;
    linnet_requant requant;
    linnet_requant_init(&requant);
    requant.scale = scales;
    requant.capacity = 4;
    if (linnet_step_get_requant(step, &requant) == LINNET_OK) {
        char block[16];
        sum += requant.x_zero + (double)scales[0];
        if (linnet_step_result_source(step, NULL, block, sizeof block, &length) != LINNET_OK || length < sizeof block)
            mock_misused();
    }
    for (int k = 0; k < 2; k++) inspect_body(linnet_step_body(step, k));
    if (linnet_step_get_map(step, &program) != LINNET_OK) return;
    for (int i = 0; i < program.instruction_count; i++)
        if (linnet_map_get_opcode((int)program.program[5 * i], &opcode) == LINNET_OK) sum += opcode.arity;
}

static void inspect_body(const linnet_body *body) {
    const linnet_step *step;
    linnet_device_tensor t;
    volatile double sum = 0;
    linnet_device_tensor_init(&t);
    for (int i = 0; body != NULL && (step = linnet_body_step(body, i)) != NULL; i++) {
        inspect(step);
        for (int k = 0; k < linnet_step_input_count(step); k++) sum += (double)constant_sum(input_of(step, k));
    }
    for (int i = 0; body != NULL && linnet_body_get_input(body, i, &t) == LINNET_OK; i++) sum += constant_sum(t);
    for (int i = 0; body != NULL && linnet_body_get_output(body, i, &t) == LINNET_OK; i++) sum += constant_sum(t);
}

enum { MOST_OPERANDS = 512 };

/* At most a quarter of the CPU's time. */
static double time_of(const linnet_step *step) {
    linnet_step_counts counts;
    linnet_step_counts_init(&counts);
    if (linnet_step_get_counts(step, &counts) != LINNET_OK) mock_misused();
    const double ns = counts.cpu_ns < 1e12 ? counts.cpu_ns : 1000; /* no kernel of the CPU can run it */
    return ns * (double)(mock_hash(linnet_step_name(step), 6) % 64) / 256;
}

/* Two devices split the 16 parts that a node's name falls into. */
static double cost(void *context, const linnet_step *step) {
    if (mock(hostile)) inspect(step);
    if (linnet_step_input_count(step) > MOST_OPERANDS || linnet_step_output_count(step) > MOST_OPERANDS) return -1;
    if (linnet_step_body(step, 0) != NULL) return -1;
    const int64_t part = (int64_t)(mock_hash(linnet_step_name(step), 1) % 16);
    const int64_t share = mock(share);
    const bool mine = context == (void *)device_of(NULL) ? part < share : part >= share && part < 2 * share;
    return mine ? time_of(step) : -1;
}

static uint64_t constants_of(const linnet_step *step) {
    uint64_t bytes = 0;
    for (int i = 0; i < linnet_step_input_count(step); i++) {
        const linnet_device_tensor t = input_of(step, i);
        if (t.dtype != LINNET_NONE && t.constant) bytes += round_up(dense_bytes(&t));
    }
    return bytes;
}

/* A few steps together take less than each alone. */
static int offer(void *context, const linnet_step *const *steps, int count, linnet_offer *out) {
    (void)context;
    const uint64_t noise = mock_hash(linnet_step_name(steps[0]), 5);
    const int most = 1 + (int)(noise % 5);
    if (out->count != 1 || count < 1) mock_misused();
    for (int i = 0; i < count && mock(hostile); i++) inspect(steps[i]);
    out->count = count < most ? count : most;
    if (mock(refuses) && noise >> 20 & 1 && noise >> 21 & 1) out->count = 0;
    out->cost_ns = 0;
    for (int i = 0; i < out->count; i++) out->cost_ns += time_of(steps[i]) * (double)(noise >> 8 & 0xFF) / 256;
    return mock_fails(MOCK_OFFER);
}

static int claim(void *context, const linnet_step *const *steps, int count, linnet_claim *out) {
    (void)context;
    const uint64_t noise = mock_hash(linnet_step_name(steps[0]), 2);
    const int most = mock(claims) ? 1 + (int)(noise % 5) : 1;
    out->count = count < most ? count : most;
    if (mock(refuses) && (noise >> 24) % 8 == 0) {
        out->count = 0;
        return mock_fails(MOCK_CLAIM);
    }
    out->fused = mock(claims) && noise >> 8 & 1;
    out->scratch_bytes = noise >> 16 & 0x3C0;
    out->kernel = out->fused ? "mock_fused" : "mock";
    if (noise >> 9 & 1)
        for (int i = 0; i < out->count; i++) out->packed_bytes += constants_of(steps[i]);
    out->packs = out->packed_bytes > 0;
    return mock_fails(MOCK_CLAIM);
}

static uint32_t propose(void *context, const linnet_step *step, int output) {
    (void)context;
    const linnet_device_tensor t = output_of(step, output);
    return mock(layouts) && element(&t) > 0 && mock_hash(linnet_step_name(step), 3 + output) % 4 ? REVERSED : 0;
}

static bool accept(void *context, const linnet_step *step, int input, uint32_t layout) {
    (void)context;
    return layout == REVERSED && mock_hash(linnet_step_name(step), 64 + input) % 8;
}

static uint64_t layout_bytes(void *context, const linnet_device_tensor *tensor, uint32_t layout) {
    (void)context;
    if (layout != REVERSED) mock_misused();
    return (count_of(tensor) + 3) / 4 * 4 * element(tensor);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int allocate(void *context, uint64_t bytes, linnet_handle *out) {
    (void)context;
    const int code = mock_fails(MOCK_ALLOCATE);
    if (code != 0) return code;
    if (bytes == 0 || (mock(largest) > 0 && bytes > (uint64_t)mock(largest))) return mock_misused();
    buffer *b = calloc(1, sizeof *b);
    unsigned char *memory = b != NULL ? malloc(bytes + 2 * CANARY) : NULL;
    if (memory == NULL) {
        free(b);
        return MOCK_MISUSED;
    }
    memset(memory, 0x5A, bytes + 2 * CANARY);
    b->memory = memory + CANARY;
    b->bytes = bytes;
    mock_count(MOCK_live_bytes, (int64_t)bytes);
    *out = mock_add(MOCK_BUFFER, b);
    return 0;
}

static void release(void *context, linnet_handle handle, uint64_t bytes) {
    (void)context;
    buffer *b = mock_remove(MOCK_BUFFER, handle);
    if (b == NULL) return;
    if (b->bytes != bytes || b->mapped) mock_misused();
    for (int i = 1; i <= CANARY && !b->imported; i++)
        if (b->memory[-i] != 0x5A || b->memory[b->bytes + (uint64_t)i - 1] != 0x5A) {
            mock_misused();
            break;
        }
    if (!b->imported) {
        mock_count(MOCK_live_bytes, -(int64_t)b->bytes);
        free(b->memory - CANARY);
    }
    free(b);
}

static int map(void *context, linnet_handle handle, uint64_t bytes, void **host) {
    (void)context;
    buffer *b = mock_get(MOCK_BUFFER, handle);
    const int code = mock_fails(MOCK_MAP);
    if (code != 0) return code;
    if (b == NULL || b->mapped || b->bytes != bytes) return mock_misused();
    b->mapped = true;
    *host = b->memory;
    return 0;
}

static int unmap(void *context, linnet_handle handle, void *host) {
    (void)context;
    buffer *b = mock_get(MOCK_BUFFER, handle);
    if (b == NULL || !b->mapped || host != b->memory) return mock_misused();
    b->mapped = false;
    return mock_fails(MOCK_UNMAP);
}

static int import(void *context, void *host, uint64_t bytes, linnet_handle *out) {
    (void)context;
    const int code = mock_fails(MOCK_IMPORT);
    if (code != 0) return code;
    buffer *b = calloc(1, sizeof *b);
    if (b == NULL) return MOCK_MISUSED;
    *b = (buffer){.memory = host, .bytes = bytes, .imported = true};
    *out = mock_add(MOCK_BUFFER, b);
    return 0;
}

static int import_constants(void *context, const void *host, uint64_t bytes, linnet_handle *out) {
    (void)context;
    const int code = mock_fails(MOCK_IMPORT_CONSTANTS);
    buffer *b = code == 0 ? calloc(1, sizeof *b) : NULL;
    if (b == NULL) return MOCK_MISUSED;
    if ((uintptr_t)host % 64 != 0 || bytes % 64 != 0 || bytes == 0) mock_misused();
    *b = (buffer){.memory = (unsigned char *)(uintptr_t)host, .bytes = bytes, .imported = true, .constant = true};
    *out = mock_add(MOCK_BUFFER, b);
    return 0;
}

typedef struct turn {
    linnet_handle buffer;
    bool to_device;
} turn;

static int do_turn(const void *argument) {
    const turn *t = argument;
    buffer *b = mock_get(MOCK_BUFFER, t->buffer);
    if (b == NULL || !b->imported || b->lent == t->to_device) return mock_misused();
    b->lent = t->to_device;
    mock_count(MOCK_turns, 1);
    return 0;
}

static int take_turns(linnet_handle handle, linnet_handle of, bool to_device, enum mock_callback callback) {
    mock_queue *queue = mock_get(MOCK_QUEUE, handle);
    const int code = mock_fails(callback);
    if (queue == NULL) return MOCK_MISUSED;
    if (code == 0) mock_submit(queue, do_turn, &(turn){of, to_device}, sizeof(turn));
    return code;
}

static int host_acquire(void *context, linnet_handle queue, linnet_handle of, void *host, uint64_t bytes) {
    (void)context, (void)host, (void)bytes;
    return take_turns(queue, of, false, MOCK_HOST_ACQUIRE);
}

static int host_release(void *context, linnet_handle queue, linnet_handle of, void *host, uint64_t bytes) {
    (void)context, (void)host, (void)bytes;
    return take_turns(queue, of, true, MOCK_HOST_RELEASE);
}

static int allocate_host(void *context, uint64_t bytes, void **host) {
    (void)context;
    const int code = mock_fails(MOCK_ALLOCATE_HOST);
    if (code != 0) return code;
    mock_count(MOCK_pinned_bytes, (int64_t)bytes);
    return (*host = aligned_alloc(256, (bytes + 255) / 256 * 256)) == NULL;
}

static void release_host(void *context, void *host, uint64_t bytes) {
    (void)context;
    mock_count(MOCK_pinned_bytes, -(int64_t)bytes);
    free(host);
}

/* The memory of a span with `padding` bytes behind it; NULL for a wrong one. */
static unsigned char *padded(const linnet_span *span, uint64_t bytes, uint64_t padding) {
    const buffer *b = mock_get(MOCK_BUFFER, span->buffer);
    if (b == NULL) return NULL;
    if (b->imported && !b->constant) padding = 0;
    if (b->imported && !b->constant && mock(lends) && !b->lent) mock_misused();
    if (span->offset + bytes + padding > b->bytes || b->mapped ||
        ((!b->imported || b->constant) && span->offset % 256 != 0)) {
        mock_misused();
        return NULL;
    }
    return b->memory + span->offset;
}

static unsigned char *at(const linnet_span *span, uint64_t bytes) {
    return padded(span, bytes, (uint64_t)mock(padding));
}

/* ---- queues and events ------------------------------------------------------------------------------------------- */

static int open_queue(void *context, linnet_handle *out) {
    (void)context;
    const int code = mock_fails(MOCK_OPEN);
    mock_queue *queue = code == 0 ? mock_queue_new() : NULL;
    if (queue != NULL) *out = mock_add(MOCK_QUEUE, queue);
    return queue != NULL ? 0 : code != 0 ? code : MOCK_MISUSED;
}

static void close_queue(void *context, linnet_handle handle) {
    (void)context;
    mock_queue *queue = mock_remove(MOCK_QUEUE, handle);
    if (queue != NULL) mock_queue_free(queue);
}

static int finish(void *context, linnet_handle handle) {
    (void)context;
    mock_queue *queue = mock_get(MOCK_QUEUE, handle);
    if (queue == NULL) return MOCK_MISUSED;
    const int code = mock_queue_finish(queue), asked = mock_fails(MOCK_FINISH);
    return asked != 0 ? asked : code;
}

static int create_event(void *context, linnet_handle *out) {
    (void)context;
    const int code = mock_fails(MOCK_CREATE_EVENT);
    mock_event *event = code == 0 ? mock_event_new() : NULL;
    if (event != NULL) *out = mock_add(MOCK_EVENT, event);
    return event != NULL ? 0 : code != 0 ? code : MOCK_MISUSED;
}

static void free_event(void *context, linnet_handle handle) {
    (void)context;
    mock_event *event = mock_remove(MOCK_EVENT, handle);
    if (event != NULL) mock_event_free(event);
}

static int record(void *context, linnet_handle queue_handle, linnet_handle event_handle) {
    (void)context;
    mock_queue *queue = mock_get(MOCK_QUEUE, queue_handle);
    mock_event *event = mock_get(MOCK_EVENT, event_handle);
    const int code = mock_fails(MOCK_RECORD);
    if (queue == NULL || event == NULL) return MOCK_MISUSED;
    if (code == 0) mock_event_record(queue, event);
    return code;
}

static int wait_for(void *context, linnet_handle handle) {
    (void)context;
    mock_event *event = mock_get(MOCK_EVENT, handle);
    if (event == NULL) return MOCK_MISUSED;
    mock_count(MOCK_waits, 1);
    const int code = mock_event_wait(event), asked = mock_fails(MOCK_WAIT);
    return asked != 0 ? asked : code;
}

static int wait_until(void *context, linnet_handle handle, uint64_t ns) {
    (void)context;
    mock_event *event = mock_get(MOCK_EVENT, handle);
    if (event == NULL) return MOCK_MISUSED;
    const int code = mock_event_wait_until(event, ns), asked = mock_fails(MOCK_WAIT);
    if (code != LINNET_DEVICE_PENDING) mock_count(MOCK_waits, 1);
    return asked != 0 ? asked : code;
}

static int follow(void *context, linnet_handle handle, const linnet_device *of, linnet_handle event_handle) {
    (void)context;
    mock_queue *queue = mock_get(MOCK_QUEUE, handle);
    mock_event *event = mock_get(MOCK_EVENT, event_handle);
    const int code = mock_fails(MOCK_FOLLOW);
    if (queue == NULL || event == NULL || of == NULL) return MOCK_MISUSED;
    if (code == 0) mock_follow(queue, event);
    return code;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

typedef struct transfer {
    linnet_device_tensor tensor;
    linnet_span span, other;
    void *to;
    const void *from;
} transfer;

/* Copies between dense host memory and the layout; the reversed order is its own inverse. */
static void convert(const linnet_device_tensor *t, void *to, const void *from) {
    const uint64_t count = count_of(t), size = element(t);
    if (t->layout == 0) {
        memcpy(to, from, (size_t)t->bytes);
        return;
    }
    if (t->layout != REVERSED) mock_misused();
    for (uint64_t i = 0; i < count; i++)
        memcpy((char *)to + i * size, (const char *)from + (count - 1 - i) * size, (size_t)size);
}

static int do_upload(const void *argument) {
    const transfer *t = argument;
    unsigned char *to = at(&t->span, t->tensor.bytes);
    if (to == NULL) return MOCK_MISUSED;
    convert(&t->tensor, to, t->from);
    return 0;
}

static int do_download(const void *argument) {
    const transfer *t = argument;
    const unsigned char *from = at(&t->span, t->tensor.bytes);
    if (from == NULL) return MOCK_MISUSED;
    convert(&t->tensor, t->to, from);
    return 0;
}

static int do_copy(const void *argument) {
    const transfer *t = argument;
    unsigned char *to = at(&t->span, t->span.bytes);
    const unsigned char *from = at(&t->other, t->other.bytes);
    if (to == NULL || from == NULL || t->span.bytes != t->other.bytes) return mock_misused();
    memmove(to, from, (size_t)t->span.bytes);
    return 0;
}

static int submit(linnet_handle handle, int (*job)(const void *), const transfer *what, enum mock_number counter) {
    mock_queue *queue = mock_get(MOCK_QUEUE, handle);
    if (queue == NULL) return MOCK_MISUSED;
    if (mock_busy(queue)) mock_count(MOCK_overlaps, 1);
    mock_count(counter, 1);
    mock_submit(queue, job, what, sizeof *what);
    return 0;
}

static int upload(void *context, linnet_handle queue, const linnet_device_tensor *tensor, const linnet_span *to,
                  const void *from) {
    (void)context;
    const int code = mock_fails(MOCK_UPLOAD);
    if (tensor->variable != NULL) mock_count(MOCK_variables, 1);
    return code ? code
                : submit(queue, do_upload, &(transfer){.tensor = *tensor, .span = *to, .from = from}, MOCK_uploads);
}

static int download(void *context, linnet_handle queue, const linnet_device_tensor *tensor, void *to,
                    const linnet_span *from) {
    (void)context;
    const int code = mock_fails(MOCK_DOWNLOAD);
    return code ? code
                : submit(queue, do_download, &(transfer){.tensor = *tensor, .span = *from, .to = to}, MOCK_downloads);
}

static bool reaches(void *context, const linnet_device *other) {
    (void)context;
    return mock(reaches) && other != NULL && strncmp(other->name, "mock", 4) == 0;
}

static int copy(void *context, linnet_handle queue, const linnet_span *to, const linnet_device *of,
                const linnet_span *from) {
    (void)context;
    const int code = mock_fails(MOCK_COPY);
    if (of == NULL) return mock_misused();
    return code ? code : submit(queue, do_copy, &(transfer){.span = *to, .other = *from}, MOCK_copies);
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

typedef struct launch {
    const linnet_work *work;
    state *of;
} launch;

/* A value that lives only inside a fused claim. */
typedef struct inside {
    struct inside *next;
    int64_t value;
    _Alignas(64) unsigned char data[];
} inside;

static int pack(const void *argument) {
    const linnet_work *work = ((const launch *)argument)->work;
    unsigned char *to = padded(&work->packed, work->packed.bytes, 0);
    uint64_t offset = 0;
    if (to == NULL) return MOCK_MISUSED;
    for (int s = 0; s < work->count; s++)
        for (int i = 0; i < linnet_step_input_count(work->steps[s]); i++) {
            const linnet_device_tensor t = input_of(work->steps[s], i);
            if (t.dtype == LINNET_NONE || !t.constant) continue;
            memcpy(to + offset, t.data, (size_t)dense_bytes(&t));
            offset += round_up(dense_bytes(&t));
        }
    return offset <= work->packed.bytes ? 0 : mock_misused();
}

/* Asks for the text of a map twice, with room for half of it and for all of it. A sanitizer sees what is written beyond
 * the buffer. */
static void read_source(const linnet_step *step) {
    size_t length = 0, whole = 0;
    const linnet_status status = linnet_step_map_source(step, NULL, NULL, 0, &length);
    linnet_map map;
    linnet_map_init(&map);
    if (status == LINNET_UNKNOWN_NAME) return;
    /* A conversion that linnet_device.h excludes, such as quantization per block. A map always has a text. */
    if (status == LINNET_UNSUPPORTED && linnet_step_get_map(step, &map) == LINNET_UNKNOWN_NAME) return;
    for (size_t size = length / 2; status == LINNET_OK && size <= length + 1; size += length + 1 - length / 2) {
        char *text = malloc(size);
        if (text == NULL) return;
        if (linnet_step_map_source(step, NULL, text, size, &whole) != LINNET_OK || whole != length ||
            strlen(text) != size - 1)
            mock_misused();
        free(text);
    }
    if (status != LINNET_OK) mock_misused();
}

static int prepare(void *context, linnet_handle handle, const linnet_work *work, linnet_handle *out) {
    (void)context;
    for (int s = 0; s < work->count; ++s) read_source(work->steps[s]);
    mock_queue *queue = mock_get(MOCK_QUEUE, handle);
    const int code = mock_fails(MOCK_PREPARE);
    if (code == 0 && mock(late) && mock_hash(linnet_step_name(work->steps[0]), 7) % 8 == 0)
        return LINNET_DEVICE_REFUSES;
    state *made = code == 0 && queue != NULL ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) return code != 0 ? code : MOCK_MISUSED;
    if (work->packed.bytes > 0) mock_submit(queue, pack, &(launch){.work = work}, sizeof(launch));
    *out = mock_add(MOCK_STATE, made);
    return 0;
}

static void unprepare(void *context, linnet_handle handle) {
    (void)context;
    free(mock_remove(MOCK_STATE, handle));
}

static const unsigned char *value_inside(const inside *values, int64_t value) {
    for (; values != NULL; values = values->next)
        if (values->value == value) return values->data;
    mock_misused();
    return NULL;
}

/* The dense value of an operand. Memory that must be freed goes to *owned. */
static const void *read_operand(const linnet_work *work, const linnet_device_tensor *t, const linnet_span *span,
                                const inside *values, uint64_t *packed_at, void **owned) {
    if (t->constant && work->packed.bytes > 0) {
        const unsigned char *p = padded(&work->packed, work->packed.bytes, 0);
        const void *value = p != NULL ? p + *packed_at : NULL;
        *packed_at += round_up(dense_bytes(t));
        if (span->buffer != 0) mock_misused();
        return value;
    }
    if (span->buffer == 0) return value_inside(values, t->value);
    const unsigned char *from = at(span, t->bytes);
    if (from == NULL || t->layout == 0) return from;
    mock_count(MOCK_private, 1);
    *owned = malloc((size_t)dense_bytes(t) + 1);
    if (*owned != NULL) convert(t, *owned, from);
    return *owned;
}

/* An output overlaps an input only if a map overwrites the whole of it, and the device allows that. */
static void check_overlap(const linnet_work *work, int s, const linnet_span *output) {
    const linnet_step *step = work->steps[s];
    for (int i = 0; i < linnet_step_input_count(step); i++) {
        const linnet_span *input = &work->inputs[s][i];
        if (input->buffer == 0 || input->buffer != output->buffer || input->offset >= output->offset + output->bytes ||
            output->offset >= input->offset + input->bytes)
            continue;
        const bool map = strcmp(linnet_step_op(step), "map") == 0;
        if (!mock(in_place) || !map || input->offset != output->offset || input->bytes != output->bytes) mock_misused();
        mock_count(MOCK_overwritten, 1);
    }
}

static int run_step(const linnet_work *work, int s, inside **values, uint64_t *packed_at) {
    const linnet_step *step = work->steps[s];
    const int n_in = linnet_step_input_count(step), n_out = linnet_step_output_count(step);
    const void *in[MOST_OPERANDS] = {NULL};
    void *out[MOST_OPERANDS] = {NULL}, *owned[MOST_OPERANDS] = {NULL};
    int code = n_in <= MOST_OPERANDS && n_out <= MOST_OPERANDS ? 0 : mock_misused();
    for (int i = 0; i < n_in && code == 0; i++) {
        const linnet_device_tensor t = input_of(step, i);
        if (t.dtype == LINNET_NONE) continue;
        in[i] = read_operand(work, &t, &work->inputs[s][i], *values, packed_at, &owned[i]);
        if (in[i] == NULL) code = MOCK_MISUSED;
    }
    for (int o = 0; o < n_out && code == 0; o++) {
        const linnet_device_tensor t = output_of(step, o);
        if (t.dtype == LINNET_NONE) continue;
        inside *made = aligned_alloc(64, (size_t)round_up(sizeof *made + dense_bytes(&t) + 1));
        if (made == NULL) abort();
        made->value = t.value;
        made->next = *values;
        *values = made;
        out[o] = made->data;
    }
    linnet_error error;
    if (code == 0 && linnet_step_evaluate(step, in, out, &error) != LINNET_OK) {
        char text[512];
        linnet_error_format(&error, text, sizeof text);
        if (!mock(hostile)) fprintf(stderr, "mock device: %s\n", text);
        code = mock(hostile) ? MOCK_FAILED : mock_misused();
    }
    for (int o = 0; o < n_out && code == 0; o++) {
        const linnet_device_tensor t = output_of(step, o);
        const linnet_span *span = &work->outputs[s][o];
        if (t.dtype == LINNET_NONE || span->buffer == 0) continue;
        check_overlap(work, s, span);
        unsigned char *to = at(span, t.bytes);
        if (to == NULL) code = MOCK_MISUSED;
        if (to == NULL) break;
        convert(&t, to, out[o]);
        const buffer *b = mock_get(MOCK_BUFFER, span->buffer); /* a device may write into the padding */
        if (b != NULL && !b->imported) memset(to + t.bytes, 0xEE, (size_t)mock(padding));
    }
    for (int i = 0; i < n_in && i < MOST_OPERANDS; i++) free(owned[i]);
    return code;
}

static int execute(const void *argument) {
    const launch *l = argument;
    const linnet_work *work = l->work;
    inside *values = NULL;
    uint64_t packed_at = 0;
    int code = 0;
    if (work->scratch.bytes > 0) {
        unsigned char *scratch = padded(&work->scratch, work->scratch.bytes, 0);
        if (scratch != NULL) memset(scratch, 0xC3, (size_t)work->scratch.bytes);
    }
    for (int s = 0; s < work->count && code == 0; s++) code = run_step(work, s, &values, &packed_at);
    while (values != NULL) {
        inside *next = values->next;
        free(values);
        values = next;
    }
    l->of->ns = 1000u * (uint64_t)work->count;
    return code;
}

static int run(void *context, linnet_handle handle, const linnet_work *work, linnet_handle state_handle) {
    (void)context;
    mock_queue *queue = mock_get(MOCK_QUEUE, handle);
    state *of = mock_get(MOCK_STATE, state_handle);
    const int code = mock_fails(MOCK_RUN);
    if (queue == NULL || of == NULL) return MOCK_MISUSED;
    if (code != 0) return code;
    mock_count(MOCK_runs, 1);
    if (work->count > 1) mock_count(MOCK_fused, 1);
    mock_submit(queue, execute, &(launch){.work = work, .of = of}, sizeof(launch));
    return 0;
}

static int elapsed(void *context, const linnet_work *work, linnet_handle handle, uint64_t *ns) {
    (void)context;
    const state *of = mock_get(MOCK_STATE, handle);
    if (of == NULL || !work->trace) return mock_misused();
    *ns = of->ns;
    return mock_fails(MOCK_ELAPSED);
}

const char *mock_callback_name(int callback);

static const char *explain(void *context, int code) {
    (void)context;
    return code == MOCK_MISUSED  ? "the runtime misused the device"
           : code == MOCK_FAILED ? "a step cannot be computed"
                                 : mock_callback_name(code - 1);
}

#define FUNCTIONS                                                                                                      \
    .limits = limits, .cost = cost, .offer = offer, .claim = claim, .propose = propose, .accept = accept,              \
    .layout_bytes = layout_bytes, .allocate = allocate, .release = release, .map = map, .unmap = unmap,                \
    .import = import, .open = open_queue, .close = close_queue, .finish = finish, .create_event = create_event,        \
    .free_event = free_event, .record = record, .wait = wait_for, .wait_until = wait_until, .follow = follow,          \
    .upload = upload, .download = download, .reaches = reaches, .copy = copy, .prepare = prepare,                      \
    .unprepare = unprepare, .run = run, .elapsed = elapsed, .explain = explain

/* `context` is the device itself. */
static linnet_device devices[DEVICES] = {
    {sizeof(linnet_device), LINNET_DEVICE_VERSION, "mock", &devices[0], FUNCTIONS},
    {sizeof(linnet_device), LINNET_DEVICE_VERSION, "mock2", &devices[1], FUNCTIONS},
};

/* Called when a setting has changed: functions that a test may switch off. */
void mock_changed(void) {
    for (int i = 0; i < DEVICES; i++) {
        devices[i].import_constants = mock(in_file) ? import_constants : NULL;
        devices[i].host_acquire = mock(lends) ? host_acquire : NULL;
        devices[i].host_release = mock(lends) ? host_release : NULL;
        devices[i].allocate_host = mock(pinned) ? allocate_host : NULL;
        devices[i].release_host = mock(pinned) ? release_host : NULL;
    }
}

static const linnet_device *device_of(void *context) { return context != NULL ? context : &devices[0]; }

/* Gives the two devices in turn. */
EXPORT const linnet_device *linnet_extension_device(void) {
    static unsigned calls;
    return &devices[calls++ % DEVICES];
}
