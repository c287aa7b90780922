/* branches.c - decides which steps run side by side. A stretch of the graph may consist of branches that need nothing
 * of each other. If the modelled time is then shorter, each branch runs on one thread while other threads run the
 * others. */
#include "kernel/cost.h"
#include "plan/graph/prepare.h"
#include "plan/graph/views.h"
#include "plan/passes/passes.h"

#include <math.h>

/* Without this limit, planning would not be linear in the number of nodes. */
enum { VISITS = 64 /* most visits per node */ };

/* How much a further thread adds in a step that several threads share, relative to a thread that runs a branch by
 * itself. The machine's own rate (ln_machine.thread) does not matter, because busy cores slow down both. Measured on
 * two threads: towers and LSTMs were 1.5 to 1.6 times as fast as on one thread if both threads shared each step,
 * and 1.7 to 1.9 times if each thread ran branches. */
static const float IN_STEPS = 0.85f;
/* With a fork, the modelled time must be at most this share of the time without, because the model is not exact and the
 * fork needs more memory. */
static const double WORTH = 0.96;

typedef struct search {
    ln_work *w;
    ln_work_node **nodes; /* the run: consecutive ready nodes, between two nodes that must stay where they are */
    int32_t *at;          /* per node of the run: its position among all nodes */
    int32_t n;
    int32_t *slot;   /* per value: the node of the run that makes it; -1: none */
    int32_t *latest; /* per node: the last node of the run whose result it reads; -1: none */
    int32_t *counts; /* [i]: number of nodes whose `latest` is i - 1 */
    double (*ns)[2]; /* per node: its time on one thread, and on the threads that it would use if it ran alone; NAN: not
                        known yet */
    int32_t *parent; /* per node: a node nearer to the first node of its branch (union-find) */
    struct ln_machine free;  /* the machine, as if no other program used its cores */
    double *weight;          /* for the first node of a branch: the time of the branch on one thread */
    int32_t *heads, n_heads; /* the first nodes of the branches that were weighed last */
    int64_t visits;
} search;

/* ---- which nodes may move ---------------------------------------------------------------------------------------- */

/* Tells whether the node must not be in a branch: it runs a body, or calls the user's code, which may not expect that
 * other threads run at the same time. */
static bool stays(const ln_work *w, const ln_work_node *node) {
    if (!ln_is_kernel(node) || ln_is_assign(node) || node->bodies[0] != NULL) return true;
    if (node->op->flags & LN_OP_REGISTERED) return true;
    for (int32_t o = 0; o < node->n_outputs; ++o) {
        const int32_t v = node->outputs[o];
        if (v < 0) continue;
        if (ln_count(&ln_value_at(w, v)->tensor) < 0) return true; /* its memory grows in the run */
    }
    return false;
}

static linnet_status times_of(search *s, int32_t i) {
    if (!isnan(s->ns[i][0])) return LINNET_OK;
    s->ns[i][0] = s->ns[i][1] = 0;
    return ln_is_view(s->w, s->nodes[i]) ? LINNET_OK : ln_node_times(s->w, s->nodes[i], &s->free, s->ns[i]);
}

/* ---- branches ---------------------------------------------------------------------------------------------------- */

static int32_t head_of(search *s, int32_t i) {
    while (s->parent[i] != i) i = s->parent[i] = s->parent[s->parent[i]];
    return i;
}

/* Adds node i to the stretch that begins at `first`. The branches that the node reads are joined to one. Returns how
 * many branches that were. */
static int32_t join(search *s, int32_t first, int32_t i) {
    const ln_work_node *node = s->nodes[i];
    int32_t joined = 0;
    s->parent[i] = i;
    s->weight[i] = s->ns[i][0];
    for (int32_t k = 0; k < ln_slots(node); ++k) {
        const int32_t made = node->inputs[k] >= 0 ? s->slot[node->inputs[k]] : -1;
        if (made < first) continue;
        const int32_t a = head_of(s, made), b = head_of(s, i);
        if (a == b) continue;
        ++joined;
        s->parent[ln_max(a, b)] = (int32_t)ln_min(a, b);
        s->weight[ln_min(a, b)] += s->weight[ln_max(a, b)];
    }
    return joined;
}

/* Returns the number of branches that node i reads. */
static int32_t reads(search *s, int32_t first, int32_t i) {
    enum { FEW = 64 };
    int32_t seen[FEW], n = 0;
    const ln_work_node *node = s->nodes[i];
    for (int32_t k = 0; k < ln_slots(node) && n < FEW; ++k) {
        const int32_t made = node->inputs[k] >= 0 ? s->slot[node->inputs[k]] : -1;
        if (made < first) continue;
        const int32_t head = head_of(s, made);
        int32_t at = 0;
        while (at < n && seen[at] != head) ++at;
        if (at == n) seen[n++] = head;
    }
    return n;
}

/* Finds the branches of the nodes [first, end), the longest one first. */
static void list_branches(search *s, int32_t first, int32_t end) {
    s->n_heads = 0;
    s->visits += end - first;
    for (int32_t i = first; i < end; ++i) {
        if (s->parent[i] != i) continue;
        int32_t at = s->n_heads++;
        for (; at > 0 && s->weight[s->heads[at - 1]] < s->weight[i]; --at) s->heads[at] = s->heads[at - 1];
        s->heads[at] = i;
        s->visits += s->n_heads - at;
    }
}

/* Returns the modelled time of the branches of [first, end) side by side, on cores that do not slow each other down. */
static double branches_ns(search *s, int32_t first, int32_t end) {
    double lanes[LN_MOST_LANES] = {0};
    list_branches(s, first, end);
    const int n = (int)ln_min(ln_min(s->w->settings.threads, LN_MOST_LANES), s->n_heads);
    for (int32_t b = 0; b < s->n_heads; ++b) ln_give_lane(lanes, n, s->weight[s->heads[b]]);
    double longest = 0;
    for (int i = 0; i < n; ++i)
        if (lanes[i] > longest) longest = lanes[i];
    return longest + (double)s->free.fork;
}

/* Finds where the stretch that begins at `first` should end so that its branches save most time, and sets *end; 0: no
 * stretch saves time. `sources` is the number of nodes from `first` on that read nothing of the stretch. Each of them
 * begins a branch. */
static linnet_status best_end(search *s, int32_t first, int32_t sources, int32_t *end) {
    int32_t branches = 0;
    double alone = 0, saved = 0;
    *end = 0;
    for (int32_t i = first; i < s->n && s->visits < (int64_t)VISITS * s->n; ++i) {
        const bool source = s->latest[i] < first;
        if (branches > 1 && !source && reads(s, first, i) > 1) {
            const double time = branches_ns(s, first, i);
            if (WORTH * alone - time > saved) {
                saved = WORTH * alone - time;
                *end = i;
            }
        }
        const linnet_status status = times_of(s, i);
        if (status != LINNET_OK) return status;
        ++s->visits;
        alone += s->ns[i][1];
        branches += 1 - join(s, first, i);
        sources -= source;
        if (branches == 1 && sources == 0) return LINNET_OK; /* everything after this reads the only branch */
    }
    if (branches > 1 && s->visits < (int64_t)VISITS * s->n) {
        const double time = branches_ns(s, first, s->n);
        if (WORTH * alone - time > saved) *end = s->n;
    }
    return LINNET_OK;
}

/* Makes a fork of the nodes [first, end): puts the nodes of each branch together, the longest branch first. */
static linnet_status make_fork(search *s, int32_t first, int32_t end) {
    ln_work *w = s->w;
    ln_work_node **order = w->nodes.items;
    for (int32_t i = first; i < end; ++i) join(s, first, i);
    list_branches(s, first, end);
    ln_work_fork *fork = ln_list_add(w, &w->parallel.forks, sizeof *fork);
    if (fork == NULL) return ln_work_no_memory(w);
    *fork = (ln_work_fork){.first = s->at[first], .end = s->at[end - 1] + 1, .branches = s->n_heads};
    int32_t at = first;
    for (int32_t b = 0; b < s->n_heads; ++b) {
        const int32_t number = ++w->parallel.n_branches;
        for (int32_t i = s->heads[b]; i < end; ++i) {
            if (head_of(s, i) != s->heads[b]) continue;
            s->nodes[i]->fork = w->parallel.forks.count;
            s->nodes[i]->branch = number;
            order[s->at[at++]] = s->nodes[i];
        }
    }
    return LINNET_OK;
}

static linnet_status search_run(search *s) {
    int64_t below = 0; /* number of nodes that read nothing that the nodes from `first` on compute */
    for (int32_t i = 0; i <= s->n; ++i) s->counts[i] = 0;
    for (int32_t i = 0; i < s->n; ++i) {
        const ln_work_node *node = s->nodes[i];
        s->latest[i] = -1;
        s->ns[i][0] = NAN;
        for (int32_t k = 0; k < ln_slots(node); ++k)
            if (node->inputs[k] >= 0 && s->slot[node->inputs[k]] > s->latest[i])
                s->latest[i] = s->slot[node->inputs[k]];
        ++s->counts[s->latest[i] + 1];
    }
    s->visits = 0;
    for (int32_t first = 0; first < s->n; ++first) {
        below += s->counts[first];
        if (below - first < 2) continue; /* the node begins the only branch */
        int32_t end = 0;
        linnet_status status = best_end(s, first, (int32_t)(below - first), &end);
        if (status == LINNET_OK && end > 0) status = make_fork(s, first, end);
        if (status != LINNET_OK) return status;
        for (; first + 1 < end; ++first) below += s->counts[first + 1];
    }
    return LINNET_OK;
}

linnet_status ln_pass_branches(ln_work *w) {
    const int32_t n = w->nodes.count, n_values = w->values.count;
    search s = {.w = w, .free = *w->settings.machine};
    s.free.thread = IN_STEPS;
    s.nodes = ln_pool_array(&w->pool, n, sizeof *s.nodes);
    s.at = ln_pool_array(&w->pool, n, sizeof *s.at);
    s.slot = ln_pool_array(&w->pool, n_values, sizeof *s.slot);
    s.latest = ln_pool_array(&w->pool, n, sizeof *s.latest);
    s.counts = ln_pool_array(&w->pool, (int64_t)n + 1, sizeof *s.counts);
    s.ns = ln_pool_array(&w->pool, n, sizeof *s.ns);
    s.parent = ln_pool_array(&w->pool, n, sizeof *s.parent);
    s.weight = ln_pool_array(&w->pool, n, sizeof *s.weight);
    s.heads = ln_pool_array(&w->pool, n, sizeof *s.heads);
    if (w->pool.failed) return ln_work_no_memory(w);
    for (int32_t v = 0; v < n_values; ++v) s.slot[v] = -1;
    linnet_status status = LINNET_OK;
    for (int32_t i = 0; i <= n && status == LINNET_OK; ++i) {
        ln_work_node *node = i < n ? ln_node_at(w, i) : NULL;
        if (node != NULL && node->state != LN_NODE_READY) continue;
        if (node == NULL || stays(w, node)) {
            status = search_run(&s);
            for (int32_t k = 0; k < s.n; ++k) /* for the next run of nodes, these values come from outside */
                for (int32_t o = 0; o < s.nodes[k]->n_outputs; ++o)
                    if (s.nodes[k]->outputs[o] >= 0) s.slot[s.nodes[k]->outputs[o]] = -1;
            s.n = 0;
            continue;
        }
        for (int32_t o = 0; o < node->n_outputs; ++o)
            if (node->outputs[o] >= 0) s.slot[node->outputs[o]] = s.n;
        s.at[s.n] = i;
        s.nodes[s.n++] = node;
    }
    return status;
}
