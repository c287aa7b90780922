/* barrier.c - decides when a step closes, which workers take part in it, and which workers are told. One mechanism
 * serves all modes: one group of all workers is synchronous training, a group with a quorum has backup workers, and
 * groups of one worker each are asynchronous training. */
#include "sync/server/barrier.h"

#include "sync/server/record.h"
#include "sync/server/server_members.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_pull.h"
#include "sync/server/server_state.h"
#include "sync/server/server_step.h"
#include "sync/server/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tells whether the group may make its open step under bounded staleness (Ho et al. 2013, "More effective distributed
 * ML via a stale synchronous parallel parameter server"). */
static bool may_go_on(const ln_sync_server *s, const sync_group *g) {
    return s->config.staleness < 0 || g->step <= ln_sync_slowest(s) + (uint64_t)s->config.staleness;
}

static bool is_due(const ln_sync_server *s, const sync_group *g) {
    const uint32_t needed = s->config.elastic || s->config.asynchronous ? 1 : s->config.workers;
    const bool quorum = s->config.quorum && !s->config.asynchronous && g->finite >= s->config.quorum;
    if (!g->committed || (!quorum && (g->awaited || g->committed < needed))) return false;
    return may_go_on(s, g);
}

/* ---- ACK -------------------------------------------------------------------------------------------------------- */

void ln_sync_acknowledge(sync_connection *c, uint64_t step, uint8_t outcome) {
    c->ack_step = step;
    c->ack_outcome = outcome;
    /* The ACK of a late worker, or of a worker that asks about an older step, is not held back. This worker is not
     * ahead, and another shard may be waiting for it. */
    c->member->held =
        outcome != LN_SYNC_LATE && step + 1 == c->member->group->step && !may_go_on(c->server, c->member->group);
    c->ack_due = !c->member->held;
    if (c->ack_due) ln_sync_wake(c);
}

/* Called when other groups have closed a step: sends the ACKs that were held back. */
static void release_held(ln_sync_server *s) {
    for (uint32_t i = 0; i < s->member_count; i++) {
        sync_member *m = s->members[i];
        if (!m->held || !may_go_on(s, m->group)) continue;
        m->held = false;
        if (!m->connection) continue;
        m->connection->ack_due = true;
        ln_sync_wake(m->connection);
    }
}

void ln_sync_send_ack(sync_connection *c) {
    const ln_sync_server *s = c->server;
    const sync_member *m = c->member;
    const sync_group *g = m ? m->group : NULL;
    unsigned char bytes[LN_SYNC_ACK_BYTES];
    ln_sync_ack ack;
    c->ack_due = false;
    if (!g) return;
    memset(&ack, 0, sizeof ack);
    ack.outcome = c->ack_outcome;
    ack.version = s->version;
    ack.next = g->step;
    if (s->config.batch && m->examples) {
        ack.first_example = m->first_example;
        ack.examples = m->examples;
        ack.batch = s->config.batch;
    }
    memcpy(ack.clock, g->closed_clock, sizeof g->closed_clock);
    ack.clock[4] = s->host.clock(s->host.context);
    ack.workers = g->closed_workers;
    ack.members = g->live;
    ack.loss_weight = g->loss_weight;
    ack.loss = g->loss_weight > 0 ? g->loss : 0;
    ln_sync_ack_write(&ack, bytes);
    if (!ln_sync_tell(c, LN_SYNC_ACK, c->ack_step, bytes, sizeof bytes)) {
        c->ack_due = true;
        return;
    }
    if (c->pull_after) ln_sync_want_held(c);
    c->pull_after = false;
}

/* ---- closing ---------------------------------------------------------------------------------------------------- */

/* Divides the next global batch among the live workers. */
static void share_out(ln_sync_server *s) {
    double *speed = malloc((s->member_count + 1) * sizeof *speed);
    uint64_t *examples = malloc((s->member_count + 1) * sizeof *examples), first = 0;
    uint32_t n = 0;
    if (speed && examples) {
        for (uint32_t i = 0; i < s->member_count; i++)
            if (s->members[i]->live) speed[n++] = s->members[i]->speed;
        ln_sync_share(speed, n, s->config.batch, examples);
        for (uint32_t i = 0, k = 0; i < s->member_count; i++) {
            if (!s->members[i]->live) continue;
            s->members[i]->first_example = first;
            first += s->members[i]->examples = examples[k++];
        }
    }
    free(speed);
    free(examples);
}

/* Counts a dropped push. It counts once per step, even if the push arrives several times. */
void ln_sync_count_late(ln_sync_server *s, sync_member *m, uint64_t step) {
    if (step < m->missed) return;
    m->missed = step + 1;
    m->late++;
    s->late++;
}

static void decide(ln_sync_server *s, sync_member *m, uint64_t step) {
    const uint8_t outcome = !m->committed ? LN_SYNC_LATE : m->finite ? LN_SYNC_APPLIED : LN_SYNC_NOT_FINITE;
    /* If a step closed without this member, its outcome must not overwrite an outcome that the member may still ask
     * about. */
    if (m->committed) {
        m->decided = true;
        m->last = step;
        m->outcome = outcome;
        if (m->finite)
            m->applied++, s->applied++;
        else
            m->not_finite++, s->not_finite++;
    } else if (m->begun) {
        ln_sync_count_late(s, m, step); /* a push that has not begun is counted when it arrives */
    }
    ln_sync_discard(s, m, !m->live && !m->connection);
    m->committed = m->folded = false;
    m->touched = s->sequence;
    if (m->connection) ln_sync_acknowledge(m->connection, step, outcome);
}

static void close_step(ln_sync_server *s, sync_group *g) {
    linnet_error error;
    const uint64_t step = g->step;
    double loss = 0, weights = 0;
    memcpy(g->closed_clock, g->clock, sizeof g->clock);
    g->closed_clock[2] = s->host.clock(s->host.context);
    if (ln_sync_apply_step(s, g, &error)) {
        ln_sync_fail_server(s, &error);
        return;
    }
    g->closed_workers = g->finite; /* 0 if the step was dropped */
    g->closed_clock[3] = s->host.clock(s->host.context);
    s->update_ns += g->closed_clock[3] - g->closed_clock[2];
    for (uint32_t i = 0; i < g->count; i++) {
        const sync_member *m = g->members[i];
        if (!m->committed || !m->finite || !isfinite(m->commit.loss)) continue;
        loss += m->commit.weight * m->commit.loss;
        weights += m->commit.weight;
    }
    if (!isfinite(loss) || !isfinite(weights)) loss = weights = 0; /* numbers near the limits of a double */
    g->loss_weight = weights;
    if (weights > 0) g->loss = loss / weights;
    if (!isfinite(g->loss)) g->loss_weight = 0;
    g->losses += loss;
    g->loss_weights += weights;
    if (s->config.batch) share_out(s);
    g->step++;
    g->folded = 0;
    for (uint32_t i = 0; i < g->count; i++) decide(s, g->members[i], step);
    ln_sync_count_group(g);
    if (s->config.save_every && s->storage.save && s->version - s->saved_version >= s->config.save_every &&
        ln_sync_server_save(s, &error))
        ln_sync_fail_server(s, &error);
    ln_sync_resume_peers(s);
}

void ln_sync_consider(ln_sync_server *s, sync_group *g) {
    if (s->failed || !is_due(s, g)) return;
    close_step(s, g);
    if (s->config.staleness >= 0) ln_sync_consider_all(s);
}

void ln_sync_consider_all(ln_sync_server *s) {
    bool again = true;
    while (again && !s->failed) {
        again = false;
        for (uint32_t i = 0; i < s->group_count && !s->failed; i++) {
            if (!is_due(s, s->groups[i])) continue;
            close_step(s, s->groups[i]);
            again = true;
        }
    }
    if (s->config.staleness >= 0) release_held(s);
}

void ln_sync_leave(ln_sync_server *s, sync_member *m) {
    if (m->connection) m->connection->member = NULL;
    m->connection = NULL;
    m->live = m->held = false;
    m->touched = s->sequence;
    if (!m->committed) {
        ln_sync_discard(s, m, true);
        free(m->pushes);
        m->pushes = NULL;
    }
    ln_sync_count_group(m->group);
    ln_sync_consider_all(s);
    ln_sync_resume_peers(s);
}
