/* record.c - the state that survives a server: a record of each closed step for the journal, and the table of steps and
 * outcomes for snapshots. Replayed records repeat the same updates, so the variables get the same bits.
 *
 * A record: u64 sequence (closed steps before it), u64 version before it, u64 step, u32 group, u32 members, u32
 * tensors, u32 zero; per member u32 worker, u32 outcome; per tensor u64 number, u64 rows (0: dense), then row numbers
 * (i64, within the shard's part) and the combined gradient in its memory layout. A record without members and tensors
 * means that the group skips to the step after `step`.
 *
 * A record of a put has FFFFFFFF in the place of `tensors`, which no earlier server accepts: its `step` is the number
 * of the put, its `group` the tensor, and it has no members. The process (u64) and the value follow. */
#include "sync/server/record.h"

#include "net/bytes.h"
#include "net/error.h"
#include "sync/codec/manifest.h"
#include "sync/server/server_members.h"
#include "sync/server/server_memory.h"
#include "sync/server/server_peers.h"
#include "sync/server/server_state.h"
#include "sync/server/server_update.h"
#include "sync/server/server_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 40, PER_MEMBER = 8, PER_TENSOR = 16 };
#define A_PUT UINT32_MAX

static uint64_t value_bytes(const ln_sync_server *s, uint32_t t) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    return (v->entry.kind == LN_SYNC_SPARSE ? s->rows[t] * v->row_elements : v->elements) * v->gradient_size;
}

/* Tells whether tensor t is pushed and not empty. */
static bool is_in(const ln_sync_server *s, uint32_t t) {
    const ln_sync_variable *v = &s->manifest->variables[t];
    return v->gradient && (v->entry.kind != LN_SYNC_SPARSE || s->rows[t]);
}

static void put_head(const ln_sync_server *s, unsigned char *at, uint64_t step, uint32_t group, uint32_t members,
                     uint32_t tensors) {
    put64(at, s->sequence);
    put64(at + 8, s->version);
    put64(at + 16, step);
    put32(at + 24, group);
    put32(at + 28, members);
    put32(at + 32, tensors);
    put32(at + 36, 0);
}

linnet_status ln_sync_append_put(ln_sync_server *s, uint64_t incarnation, uint64_t number, uint32_t t,
                                 const void *value, linnet_error *error) {
    unsigned char head[HEAD + 8];
    const ln_net_slice parts[2] = {{head, sizeof head}, {value, (size_t)s->manifest->variables[t].bytes}};
    if (!s->storage.append) return LINNET_OK;
    put_head(s, head, number, t, 0, A_PUT);
    put64(head + HEAD, incarnation);
    const linnet_status status = s->storage.append(s->storage.context, parts, parts[1].size ? 2 : 1, error);
    if (!status) s->journal_records++;
    return status;
}

linnet_status ln_sync_append_record(ln_sync_server *s, sync_group *g, bool update, linnet_error *error) {
    unsigned char *at;
    uint32_t members = 0, tensors = 0;
    int parts = 1;
    linnet_status status;
    if (!s->storage.append) return LINNET_OK;
    for (uint32_t i = 0; i < g->count; i++) members += g->members[i]->committed;
    for (uint32_t t = 0; update && t < s->manifest->count; t++) tensors += is_in(s, t);
    /* All data of the record except the values is in one buffer. Pieces of this buffer alternate with the values. */
    if (!ln_sync_grow(s, &s->record, HEAD + PER_MEMBER * members + PER_TENSOR * tensors))
        return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a record of the journal");
    at = s->record.data;
    put_head(s, at, g->step, g->id, members, tensors);
    at += HEAD;
    for (uint32_t i = 0; i < g->count; i++) {
        const sync_member *m = g->members[i];
        if (!m->committed) continue;
        put32(at, m->id);
        put32(at + 4, m->finite ? LN_SYNC_APPLIED : LN_SYNC_NOT_FINITE);
        at += PER_MEMBER;
    }
    s->record_parts[0].data = s->record.data;
    s->record_parts[0].size = (size_t)(at - (unsigned char *)s->record.data);
    for (uint32_t t = 0; update && t < s->manifest->count; t++) {
        int64_t *ids;
        void *values;
        if (!is_in(s, t)) continue;
        ln_sync_placed(s, t, &ids, &values);
        put64(at, t);
        put64(at + 8, s->rows[t]);
        s->record_parts[parts].data = at;
        s->record_parts[parts++].size = PER_TENSOR;
        at += PER_TENSOR;
        if (s->rows[t]) {
            s->record_parts[parts].data = ids;
            s->record_parts[parts++].size = (size_t)(8 * s->rows[t]);
        }
        s->record_parts[parts].data = values;
        s->record_parts[parts++].size = (size_t)value_bytes(s, t);
    }
    status = s->storage.append(s->storage.context, s->record_parts, parts, error);
    if (!status) s->journal_records++;
    return status;
}

/* The group continues with a later step. If a restarted server did not know this, its workers would wait for one
 * another and never continue. */
linnet_status ln_sync_skip_to(ln_sync_server *s, sync_group *g, uint64_t step, linnet_error *error) {
    g->step = step - 1;
    const linnet_status status = ln_sync_append_record(s, g, false, error);
    g->step = step;
    if (!status) s->sequence++;
    return status;
}

/* ---- replay ----------------------------------------------------------------------------------------------------- */

static linnet_status damaged(linnet_error *error, const char *what) {
    ln_sync_fail(error, LINNET_CORRUPT, "the journal does not fit its model and snapshot: %s", what);
    return ln_sync_hint(error, "the journal belongs to another model, or is damaged: restore a copy, or give this "
                               "model its own folder"),
           LINNET_CORRUPT;
}

static linnet_status take_members(ln_sync_server *s, const unsigned char *at, uint32_t count, uint32_t group,
                                  uint64_t step, linnet_error *error) {
    sync_group *g;
    for (uint32_t i = 0; i < count; i++, at += PER_MEMBER) {
        sync_member *m = ln_sync_member(s, get32(at), true);
        g = m ? ln_sync_group(s, group, true) : NULL;
        if (!g || !ln_sync_enter_group(g, m)) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory");
        m->decided = true;
        m->last = step;
        m->touched = s->sequence;
        m->outcome = (uint8_t)get32(at + 4);
    }
    if (!(g = ln_sync_group(s, group, true))) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory");
    g->step = step + 1;
    return LINNET_OK;
}

/* Checks that members are in ascending order, so that none occurs twice. */
static linnet_status check_members(const unsigned char *at, uint32_t count, linnet_error *error) {
    for (uint32_t i = 0; i < count; i++) {
        if (i && get32(at + PER_MEMBER * i) <= get32(at + PER_MEMBER * (i - 1)))
            return damaged(error, "a worker occurs twice, or out of order");
        if (get32(at + PER_MEMBER * i + 4) > LN_SYNC_NOT_FINITE) return damaged(error, "an outcome is unknown");
    }
    return LINNET_OK;
}

/* Checks that the row numbers are within the shard's part and ascending. */
static bool are_rows(const unsigned char *at, uint64_t count, uint64_t rows) {
    for (uint64_t i = 0; i < count; i++)
        if (get64(at + 8 * i) >= rows || (i && get64(at + 8 * i) <= get64(at + 8 * (i - 1)))) return false;
    return true;
}

/* First pass (`values` false): checks everything, and counts the rows of each sparse tensor. Second pass: copies the
 * values to their places. */
static linnet_status take_tensors(ln_sync_server *s, const unsigned char *at, size_t left, uint32_t count, bool values,
                                  linnet_error *error) {
    uint64_t t = 0, before;
    if (!values) memset(s->rows, 0, s->manifest->count * sizeof *s->rows);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t rows, bytes;
        if (left < PER_TENSOR) return damaged(error, "a record is too short");
        before = t;
        t = get64(at);
        if (i && t <= before) return damaged(error, "a tensor occurs twice, or out of order");
        rows = get64(at + 8);
        if (t >= s->manifest->count || !s->manifest->variables[t].gradient ||
            rows > s->manifest->variables[t].entry.dims[0] ||
            (rows > 0) != (s->manifest->variables[t].entry.kind == LN_SYNC_SPARSE))
            return damaged(error, "a tensor does not match the model's table");
        s->rows[t] = rows;
        bytes = value_bytes(s, (uint32_t)t);
        at += PER_TENSOR;
        left -= PER_TENSOR;
        if (left < 8 * rows + bytes) return damaged(error, "a record is too short");
        if (!values && !are_rows(at, rows, s->manifest->variables[t].entry.dims[0]))
            return damaged(error, "a row is beyond the table, occurs twice, or is out of order");
        if (values) {
            int64_t *ids;
            void *to;
            ln_sync_placed(s, (uint32_t)t, &ids, &to);
            if (rows) memcpy(ids, at, (size_t)(8 * rows));
            memcpy(to, at + 8 * rows, (size_t)bytes);
        }
        at += 8 * rows + bytes;
        left -= (size_t)(8 * rows + bytes);
    }
    return left ? damaged(error, "a record is too long") : LINNET_OK;
}

/* Repeats the update as it was made the first time: an update that may overflow is tried, and must succeed again. */
static linnet_status make_again(ln_sync_server *s, linnet_error *error) {
    bool made, finite;
    const linnet_status status = ln_sync_try_update(s, ln_sync_size_placed(s), &made, &finite, error);
    if (status) return status;
    return finite ? ln_sync_make_update(s, made, error) : damaged(error, "an update is not finite");
}

/* Stores the value of a record of a put again. `at` is behind the head. */
static linnet_status put_again(ln_sync_server *s, const unsigned char *at, size_t size, uint32_t t, uint64_t number,
                               linnet_error *error) {
    const ln_sync_variable *v = ln_sync_manifest_get(s->manifest, t);
    if (!v || v->entry.kind == LN_SYNC_READ_ONLY || size < 8 || size - 8 != v->bytes)
        return damaged(error, "a value that was put does not match the model's table");
    void *value = malloc((size_t)v->bytes + 1); /* the record is not aligned */
    if (!value) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for a value of the journal");
    memcpy(value, at + 8, (size_t)v->bytes);
    linnet_status status = ln_sync_size_of_value(v, value) == LN_SYNC_INFINITE
                               ? damaged(error, "a value that was put is not finite")
                               : LINNET_OK;
    if (!status && !ln_sync_note_put(s, get64(at), number))
        status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the numbers of puts");
    if (!status) ln_sync_store_value(s, t, value);
    free(value);
    if (!status) s->journal_records++;
    return status;
}

linnet_status ln_sync_server_replay(ln_sync_server *s, const void *record, size_t size, linnet_error *error) {
    const unsigned char *at = record;
    uint32_t group, members, tensors;
    uint64_t step;
    linnet_status status;
    if (size < HEAD) return damaged(error, "a record is too short");
    step = get64(at + 16);
    group = get32(at + 24);
    members = get32(at + 28);
    tensors = get32(at + 32);
    if (members > (size - HEAD) / PER_MEMBER) return damaged(error, "a record is too short");
    if (get64(at) < s->sequence) return LINNET_OK; /* the snapshot contains it */
    if (get64(at) > s->sequence || get64(at + 8) != s->version) return damaged(error, "a step is missing");
    if (tensors == A_PUT && !members) return put_again(s, at + HEAD, size - HEAD, group, step, error);
    at += HEAD + PER_MEMBER * members;
    size -= HEAD + PER_MEMBER * members;
    /* Checks first, so that a wrong record changes nothing. */
    status = check_members((const unsigned char *)record + HEAD, members, error);
    if (!status) status = take_tensors(s, at, size, tensors, false, error);
    if (!status && tensors) status = ln_sync_prepare_step(s, error);
    if (!status && tensors) status = take_tensors(s, at, size, tensors, true, error);
    if (!status) status = take_members(s, (const unsigned char *)record + HEAD, members, group, step, error);
    if (!status && tensors) status = make_again(s, error);
    if (status) return status;
    s->sequence++;
    s->journal_records++;
    return LINNET_OK;
}

/* ---- the table of a snapshot ------------------------------------------------------------------------------------ */

/* Returns the table, which the caller frees; NULL if out of memory. */
static char *write_table(const ln_sync_server *s) {
    const size_t size = 128 + 64 * (size_t)s->group_count + 96 * (size_t)s->member_count + 64 * (size_t)s->putter_count;
    char *text = malloc(size);
    size_t used;
    if (!text) return NULL;
    used = (size_t)snprintf(text, size, "linnet-sync 1 %" PRIu64 " %" PRIu64 "\n", s->sequence, s->version);
    if (s->forgot_epoch) used += (size_t)snprintf(text + used, size - used, "forgot %" PRIu64 "\n", s->forgot_epoch);
    if (s->large) used += (size_t)snprintf(text + used, size - used, "large\n");
    if (s->forgot_put_epoch)
        used += (size_t)snprintf(text + used, size - used, "forgot_put %" PRIu64 "\n", s->forgot_put_epoch);
    for (uint32_t i = 0; i < s->putter_count; i++)
        used += (size_t)snprintf(text + used, size - used, "put %" PRIu64 " %" PRIu64 "\n", s->putters[i].incarnation,
                                 s->putters[i].number);
    for (uint32_t i = 0; i < s->group_count; i++)
        used += (size_t)snprintf(text + used, size - used, "group %" PRIu32 " %" PRIu64 "\n", s->groups[i]->id,
                                 s->groups[i]->step);
    for (uint32_t i = 0; i < s->member_count; i++) {
        const sync_member *m = s->members[i];
        if (m->decided)
            used += (size_t)snprintf(text + used, size - used, "worker %" PRIu32 " %" PRIu32 " %" PRIu64 " %u\n", m->id,
                                     m->group->id, m->last, (unsigned)m->outcome);
    }
    return text;
}

linnet_status ln_sync_server_save(ln_sync_server *s, linnet_error *error) {
    char *table, where[256] = "";
    linnet_status status;
    if (s->failed) return ln_sync_server_failure(s, error); /* a half-made update is not saved; the journal has it */
    if (!s->storage.save) {
        ln_sync_fail(error, LINNET_INVALID_ARGUMENT, "this server has no folder for snapshots");
        return ln_sync_hint(error, "start it with a folder: linnet-parameter-server --folder DIR"),
               LINNET_INVALID_ARGUMENT;
    }
    table = write_table(s);
    if (!table) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory for the table of the snapshot");
    status = s->storage.save(s->storage.context, table, where, sizeof where, error);
    free(table);
    if (status) return status;
    s->saved_version = s->version;
    s->saved_sequence = s->sequence;
    s->saved_at = s->now;
    s->journal_records = 0;
    return LINNET_OK;
}

linnet_status ln_sync_server_restore(ln_sync_server *s, const char *table, linnet_error *error) {
    uint32_t id, group;
    uint64_t step, incarnation;
    unsigned outcome;
    if (sscanf(table, "linnet-sync 1 %" SCNu64 " %" SCNu64, &s->sequence, &s->version) != 2)
        return ln_sync_fail(error, LINNET_CORRUPT, "the snapshot has no table of steps, or one of an unknown version");
    for (const char *line = strchr(table, '\n'); line && *++line; line = strchr(line, '\n')) {
        sync_group *g;
        sync_member *m;
        if (!strncmp(line, "large\n", 6)) {
            s->large = true;
        } else if (sscanf(line, "forgot %" SCNu64, &step) == 1) {
            s->forgot_epoch = step;
        } else if (sscanf(line, "forgot_put %" SCNu64, &step) == 1) {
            s->forgot_put_epoch = step;
        } else if (sscanf(line, "put %" SCNu64 " %" SCNu64, &incarnation, &step) == 2) {
            if (!ln_sync_note_put(s, incarnation, step)) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory");
        } else if (sscanf(line, "group %" SCNu32 " %" SCNu64, &id, &step) == 2) {
            if (!(g = ln_sync_group(s, id, true))) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory");
            g->step = step;
        } else if (sscanf(line, "worker %" SCNu32 " %" SCNu32 " %" SCNu64 " %u", &id, &group, &step, &outcome) == 4) {
            m = ln_sync_member(s, id, true);
            g = ln_sync_group(s, group, true);
            if (!g || !m || !ln_sync_enter_group(g, m)) return ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "no memory");
            m->decided = true;
            m->last = step;
            m->outcome = (uint8_t)outcome;
        } else {
            return ln_sync_fail(error, LINNET_CORRUPT, "a line of the snapshot's table of steps is invalid");
        }
    }
    s->saved_version = s->version;
    s->saved_sequence = s->sequence;
    for (uint32_t t = 0; t < s->manifest->count; t++) s->tensors[t].changed = s->version;
    return LINNET_OK;
}
