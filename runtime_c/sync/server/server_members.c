/* server_members.c - members and groups, and the tables of them. Lost members are remembered, because a worker whose
 * answer was lost asks again about its push. At some time they are forgotten, because a server may outlive many
 * workers. */
#include "sync/server/server_members.h"

#include "sync/server/server_memory.h"
#include "sync/server/server_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- of one member, one group, all groups ------------------------------------------------------------------------ */

void ln_sync_discard(ln_sync_server *s, sync_member *m, bool free_memory) {
    for (uint32_t t = 0; m->pushes && t < s->manifest->count; t++) {
        sync_push *p = &m->pushes[t];
        p->rows = p->total = p->received = p->ids_received = 0;
        p->begun = p->whole = p->ids_begun = p->ids_whole = p->cut = false;
        if (!free_memory) continue;
        ln_sync_empty(s, &p->values);
        ln_sync_empty(s, &p->ids);
        ln_sync_empty(s, &p->coded);
        p->flying = false;
    }
    m->begun = 0;
    m->finite = true;
    m->size = LN_SYNC_ORDINARY;
}

void ln_sync_count_group(sync_group *g) {
    g->live = g->awaited = g->committed = g->finite = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const sync_member *m = g->members[i];
        g->live += m->live;
        g->awaited += m->live && !m->committed && m->from <= g->step;
        g->committed += m->committed;
        g->finite += m->committed && m->finite;
    }
}

uint64_t ln_sync_slowest(const ln_sync_server *s) {
    uint64_t least = LN_SYNC_NONE;
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i]->live && s->groups[i]->step < least) least = s->groups[i]->step;
    return least == LN_SYNC_NONE ? 0 : least;
}

/* ---- forgetting ------------------------------------------------------------------------------------------------- */

void ln_sync_free_member(ln_sync_server *s, sync_member *m) {
    ln_sync_discard(s, m, true);
    free(m->pushes);
    free(m);
}

void ln_sync_free_group(ln_sync_server *s, sync_group *g) {
    for (uint32_t t = 0; g->sums && t < s->manifest->count; t++) ln_sync_empty(s, &g->sums[t]);
    free(g->sums);
    free(g->members);
    free(g);
}

static void leave_group(sync_member *m) {
    sync_group *g = m->group;
    uint32_t i = 0;
    if (!g) return;
    while (g->members[i] != m) i++;
    memmove(g->members + i, g->members + i + 1, (g->count - i - 1) * sizeof *g->members);
    g->count--;
    m->group = NULL;
    ln_sync_count_group(g);
}

/* An asynchronous worker's group is freed with it. Other groups are few, and several workers share each of them, so
 * they stay as long as there is room. */
static void forget_group(ln_sync_server *s, sync_group *g) {
    uint32_t i = 0;
    if (g->count || (!s->config.asynchronous && s->group_count <= s->config.max_streams)) return;
    while (s->groups[i] != g) i++;
    memmove(s->groups + i, s->groups + i + 1, (s->group_count - i - 1) * sizeof *s->groups);
    s->group_count--;
    ln_sync_free_group(s, g);
}

/* Tells whether to forget `a` before `b`: no step was decided for `a`, or the last contact with `a` is longer ago. */
static bool is_older(const sync_member *a, const sync_member *b) {
    return a->decided != b->decided ? !a->decided : a->touched < b->touched;
}

/* The table holds twice as many members as there may be connections. When it is full, the member that has been away
 * longest is forgotten. Members that may be in the middle of something (connected, or within their lease) always
 * stay. */
static void forget(ln_sync_server *s) {
    uint32_t oldest = s->member_count;
    sync_group *g;
    sync_member *m;
    if (s->member_count / 2 < s->config.max_streams) return;
    for (uint32_t i = 0; i < s->member_count; i++) {
        m = s->members[i];
        if (m->live || m->connection || m->committed) continue;
        if (oldest == s->member_count || is_older(m, s->members[oldest])) oldest = i;
    }
    if (oldest == s->member_count) return;
    m = s->members[oldest];
    if (m->decided && !m->parted) s->forgot_epoch = s->config.epoch;
    g = m->group;
    leave_group(m);
    if (g) forget_group(s, g);
    memmove(s->members + oldest, s->members + oldest + 1, (s->member_count - oldest - 1) * sizeof *s->members);
    s->member_count--;
    ln_sync_free_member(s, m);
}

/* ---- tables of members and groups ------------------------------------------------------------------------------- */

static void *room_for(void *array, uint32_t *room, uint32_t count) {
    const uint32_t wanted = *room ? 2 * *room : 8;
    void *larger;
    if (count < *room) return array;
    larger = realloc(array, wanted * sizeof(void *));
    if (larger) *room = wanted;
    return larger;
}

static uint32_t place_of(const ln_sync_server *s, uint32_t id) {
    uint32_t low = 0, high = s->member_count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (s->members[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

sync_member *ln_sync_member(ln_sync_server *s, uint32_t id, bool make) {
    uint32_t low = place_of(s, id);
    sync_member *m;
    void *array;
    if (low < s->member_count && s->members[low]->id == id) return s->members[low];
    if (!make) return NULL;
    forget(s);
    low = place_of(s, id);
    array = room_for(s->members, &s->member_room, s->member_count);
    if (!array) return NULL;
    s->members = array;
    m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->id = id;
    m->finite = true;
    memmove(s->members + low + 1, s->members + low, (s->member_count - low) * sizeof *s->members);
    s->members[low] = m;
    s->member_count++;
    return m;
}

sync_group *ln_sync_group(ln_sync_server *s, uint32_t id, bool make) {
    sync_group *g;
    void *array;
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i]->id == id) return s->groups[i];
    if (!make || s->group_count / 4 >= s->config.max_streams)
        return NULL; /* limits the number of groups, because any
                      * worker that joins may name a new one */
    array = room_for(s->groups, &s->group_room, s->group_count);
    if (!array) return NULL;
    s->groups = array;
    g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->id = id;
    return s->groups[s->group_count++] = g;
}

bool ln_sync_enter_group(sync_group *g, sync_member *m) {
    uint32_t i;
    void *array;
    if (m->group == g) return true;
    array = room_for(g->members, &g->room, g->count);
    if (!array) return false;
    g->members = array;
    leave_group(m);
    for (i = g->count; i > 0 && g->members[i - 1]->id > m->id; i--) g->members[i] = g->members[i - 1];
    g->members[i] = m;
    g->count++;
    m->group = g;
    return true;
}
