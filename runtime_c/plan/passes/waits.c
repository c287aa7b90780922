/* waits.c - where the host waits for devices. Transfers only submit work; a wait comes before the first kernel of the
 * CPU, or transfer to another device, that needs a result. At the end of the program all queues are empty. */
#include "plan/passes/passes.h"

#include <string.h>

/* A value on the host that a device reads or writes. */
typedef struct flight {
    int32_t value;
    int32_t number; /* number of the submission */
} flight;

typedef struct queue {
    int32_t submitted, done; /* numbers of the last submission, and of the last one that the host has waited for */
    int32_t final;           /* position of the last node that uses the queue; -1: none */
    ln_work_node *last;      /* the last submission, if it is a download */
    ln_list uploads;         /* flight */
} queue;

typedef struct waits {
    ln_work *w;
    queue *queues;            /* per device: the state of its queue */
    int32_t *numbers;         /* per value: the submission that writes it on the host; 0: none */
    uint8_t *writers;         /* per value: the device of that submission */
    ln_work_node **downloads; /* per value: the transfer that writes it; NULL: a step writes it */
} waits;

static int32_t event_of(ln_work *w, ln_work_node *transfer) {
    if (transfer->event == 0) transfer->event = ++w->offload.n_events;
    return transfer->event;
}

/* Waits for the submission: the transfer `download`, or the last one of the queue if it is NULL. After the wait, the
 * device has read all earlier uploads. The uploaded values are operands of the wait, so they stay in memory until then.
 */
static linnet_status wait_for(waits *s, uint8_t device, int32_t number, ln_work_node *download, const char *name) {
    ln_work *w = s->w;
    queue *q = &s->queues[device];
    q->done = download != NULL ? number : q->submitted;
    int32_t n = 0, kept = 0;
    flight *uploads = q->uploads.items;
    for (int32_t i = 0; i < q->uploads.count; ++i) n += uploads[i].number <= q->done;
    ln_work_node *node = ln_work_new_node(w, NULL, NULL, name, -1, n, 0);
    if (node == NULL) return ln_work_no_memory(w);
    n = 0;
    for (int32_t i = 0; i < q->uploads.count; ++i)
        if (uploads[i].number <= q->done)
            node->inputs[n++] = uploads[i].value;
        else
            uploads[kept++] = uploads[i];
    q->uploads.count = kept;
    node->device = device;
    node->state = LN_NODE_READY;
    node->event = download != NULL ? event_of(w, download) : 0;
    return ln_work_append(w, node);
}

static linnet_status finish(waits *s, uint8_t device) {
    queue *q = &s->queues[device];
    if (q->submitted <= q->done) return LINNET_OK;
    return wait_for(s, device, q->submitted, q->last, q->last != NULL ? q->last->name : "");
}

/* Waits for what the node reads on the host. A queue needs no wait for its own work. */
static linnet_status wait_for_operands(waits *s, const ln_work_node *node, uint8_t queue_of) {
    for (uint8_t d = 1; d <= s->w->settings.n_devices; ++d) {
        int32_t latest = -1;
        for (int k = 0; d != queue_of && k < ln_slots(node); ++k) {
            const int32_t v = node->inputs[k];
            if (v >= 0 && s->writers[v] == d && s->numbers[v] > s->queues[d].done &&
                (latest < 0 || s->numbers[v] > s->numbers[latest]))
                latest = v;
        }
        if (latest < 0) continue;
        const linnet_status status =
            wait_for(s, d, s->numbers[latest], s->downloads[latest], ln_value_at(s->w, latest)->name);
        if (status != LINNET_OK) return status;
    }
    return LINNET_OK;
}

static linnet_status submit(waits *s, ln_work_node *node) {
    ln_work *w = s->w;
    queue *q = &s->queues[node->device];
    const int32_t number = ++q->submitted;
    q->last = NULL;
    for (int o = 0; o < node->n_outputs; ++o) {
        const int32_t v = node->outputs[o];
        if (v < 0 || !ln_on_cpu(ln_value_at(w, v)->device)) continue;
        s->numbers[v] = number;
        s->writers[v] = node->device;
        if (node->op == NULL) s->downloads[v] = q->last = node;
    }
    if (node->op != NULL) return LINNET_OK;
    const uint8_t from = ln_value_at(w, node->inputs[0])->device;
    if (ln_on_cpu(from)) {
        flight *upload = ln_list_add(w, &q->uploads, sizeof *upload);
        if (upload == NULL) return ln_work_no_memory(w);
        *upload = (flight){.value = node->inputs[0], .number = number};
    } else if (from != node->device) { /* each queue follows an event of the other one */
        node->event = w->offload.n_events + 1;
        w->offload.n_events += 2;
        s->queues[from].last = NULL;
        ++s->queues[from].submitted;
    }
    return LINNET_OK;
}

static bool updates(const ln_work *w, const ln_work_node *node) {
    for (int o = 0; o < node->n_outputs; ++o)
        if (node->outputs[o] >= 0 && ln_update_of(w, node->outputs[o]) >= 0) return true;
    return false;
}

static linnet_status insert(waits *s, ln_work_node *const *order, int32_t n) {
    ln_work *w = s->w;
    linnet_status status = LINNET_OK;
    const int32_t old_failure = w->updates.last_failure;
    for (int32_t i = 0; i < n; ++i) {
        ln_work_node *node = order[i];
        const bool ready = node->state == LN_NODE_READY, host = ready && ln_is_kernel(node);
        for (uint8_t d = 1; host && updates(w, node) && d <= w->settings.n_devices && status == LINNET_OK; ++d)
            if (s->queues[d].final < i) status = finish(s, d); /* then the update may overwrite the variable */
        if (ready && status == LINNET_OK && !ln_is_assign(node))
            status = wait_for_operands(s, node, host ? LN_CPU : node->device);
        if (ready && !host && status == LINNET_OK) status = submit(s, node);
        if (status == LINNET_OK) status = ln_work_append(w, node);
        if (status != LINNET_OK) return status;
        if (i == old_failure) w->updates.last_failure = w->nodes.count - 1;
    }
    for (uint8_t d = 1; d <= w->settings.n_devices && status == LINNET_OK; ++d) status = finish(s, d);
    /* A wait can fail, and the variables must then have their old values. */
    for (int32_t i = 0; i < w->nodes.count; ++i)
        if (ln_node_at(w, i)->state == LN_NODE_READY && !ln_is_kernel(ln_node_at(w, i)) && w->updates.last_failure < i)
            w->updates.last_failure = i;
    return status;
}

linnet_status ln_pass_waits(ln_work *w) {
    if (ln_device_count(w->settings.n_devices) == 0) return LINNET_OK;
    waits s = {.w = w};
    const int32_t n_values = w->values.count;
    int32_t n;
    s.queues = ln_pool_array(&w->pool, (int64_t)w->settings.n_devices + 1, sizeof *s.queues);
    s.numbers = ln_pool_array(&w->pool, n_values, sizeof *s.numbers);
    s.writers = ln_pool_array(&w->pool, n_values, sizeof *s.writers);
    s.downloads = ln_pool_array(&w->pool, n_values, sizeof *s.downloads);
    ln_work_node **order = ln_work_take_nodes(w, &n);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t d = 0; d <= w->settings.n_devices; ++d) s.queues[d].final = -1;
    for (int32_t i = 0; i < n; ++i) {
        if (order[i]->state != LN_NODE_READY || ln_is_kernel(order[i])) continue;
        s.queues[order[i]->device].final = i;
        const int32_t from = order[i]->op == NULL ? order[i]->inputs[0] : -1;
        if (from >= 0) s.queues[ln_value_at(w, from)->device].final = i;
    }
    const linnet_status status = insert(&s, order, n);
    for (int32_t d = 0; d <= w->settings.n_devices; ++d)
        ln_memory_free(w->memory, s.queues[d].uploads.items, (size_t)s.queues[d].uploads.capacity * sizeof(flight));
    return status;
}
