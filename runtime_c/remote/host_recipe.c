/* host_recipe.c - puts the file of a piece together. Every number of a recipe is checked before it is used, and every
 * constant, and the whole file, has the digest that the client says, or is not used. */
#define _POSIX_C_SOURCE 200809L
#include "remote/host_recipe.h"

#include "net/bytes.h"
#include "net/error.h"
#include "remote/host_memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PART = 1 << 16 }; /* bytes that are read at once */

static size_t bytes_of(int count) { return sizeof(host_recipe) + (size_t)count * sizeof(host_hole); }

void ln_host_recipe_free(host_connection *c) {
    host_recipe *recipe = c->recipe;
    const linnet_allocator *a = &c->host->allocator;
    if (recipe == NULL) return;
    if (recipe->file >= 0) {
        close(recipe->file);
        ln_host_folder_remove(recipe->path);
    }
    a->free(a->context, recipe->memory, (size_t)recipe->size);
    a->free(a->context, recipe, bytes_of(recipe->count));
    c->recipe = NULL;
}

bool ln_host_recipe_write(host_recipe *recipe, uint64_t offset, const void *bytes, size_t size) {
    if (recipe->file < 0) {
        if (size > 0) memcpy(recipe->memory + offset, bytes, size);
        return true;
    }
    for (size_t done = 0; done < size && !recipe->unwritten;) {
        const ssize_t n = pwrite(recipe->file, (const char *)bytes + done, size - done, (off_t)(offset + done));
        if (n > 0) done += (size_t)n;
        if (n == 0 || (n < 0 && errno != EINTR)) recipe->unwritten = true;
    }
    return !recipe->unwritten;
}

/* ---- what a client sends ----------------------------------------------------------------------------------------- */

static linnet_status malformed(linnet_error *error, const char *what, uint64_t number) {
    ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client sent a recipe that is not valid: %s", what);
    ln_sync_got(error, "%llu", (unsigned long long)number);
    return ln_sync_hint(error, "use the same version of linnet on both sides");
}

/* Checks the message, without its holes: they are `*count`, and the bytes outside of them begin at `*rest`. */
static linnet_status read_head(const unsigned char *bytes, size_t size, int *count, size_t *rest, linnet_error *error) {
    if (size < LN_REMOTE_RECIPE_BYTES) return malformed(error, "it has too few bytes", size);
    const uint64_t holes = get64(bytes + 8);
    if (holes > LN_REMOTE_HOLES) return malformed(error, "it has more than 65536 holes", holes);
    if (holes > (size - LN_REMOTE_RECIPE_BYTES) / LN_REMOTE_HOLE_BYTES)
        return malformed(error, "it has fewer holes than it says", holes);
    *count = (int)holes;
    *rest = LN_REMOTE_RECIPE_BYTES + LN_REMOTE_HOLE_BYTES * (size_t)holes;
    return LINNET_OK;
}

static linnet_status read_holes(host_recipe *recipe, const unsigned char *at, size_t rest, linnet_error *error) {
    uint64_t end = 0, outside = 0; /* of the last hole, and bytes before it that are in no hole */
    for (int i = 0; i < recipe->count; i++, at += LN_REMOTE_HOLE_BYTES) {
        host_hole *hole = &recipe->holes[i];
        *hole = (host_hole){.offset = get64(at), .bytes = get64(at + 8), .checksum = get32(at + 16)};
        memcpy(hole->digest, at + 24, LN_SHA256);
        if (hole->bytes < LN_REMOTE_HOLE) return malformed(error, "a hole has fewer than 512 bytes", hole->bytes);
        if (hole->offset < end) return malformed(error, "a hole begins before the end of the last one", hole->offset);
        if (hole->offset > recipe->size || hole->bytes > recipe->size - hole->offset)
            return malformed(error, "a hole ends after the end of the file", hole->offset);
        outside += hole->offset - end;
        end = hole->offset + hole->bytes;
    }
    outside += recipe->size - end;
    if (outside != rest) return malformed(error, "the bytes outside of the holes are too few or too many", rest);
    return LINNET_OK;
}

static linnet_status begin_file(host_connection *c, linnet_error *error) {
    host_recipe *recipe = c->recipe;
    const linnet_allocator *a = &c->host->allocator;
    recipe->file = ln_host_folder_make(&c->host->config, recipe->size, recipe->path);
    if (recipe->file >= 0) return LINNET_OK;
    if (recipe->size < SIZE_MAX / 2) recipe->memory = a->alloc(a->context, (size_t)recipe->size, 64);
    return recipe->memory != NULL ? LINNET_OK : ln_host_no_memory(c->host, recipe->size, error);
}

static void write_rest(host_recipe *recipe, const unsigned char *rest) {
    uint64_t at = 0;
    for (int i = 0; i <= recipe->count; i++) {
        const uint64_t end = i < recipe->count ? recipe->holes[i].offset : recipe->size;
        ln_host_recipe_write(recipe, at, rest, (size_t)(end - at));
        rest += end - at;
        if (i < recipe->count) at = end + recipe->holes[i].bytes;
    }
}

linnet_status ln_host_recipe_begin(host_connection *c, const unsigned char *bytes, size_t size, linnet_error *error) {
    const linnet_allocator *a = &c->host->allocator;
    int count = 0;
    size_t rest = 0;
    ln_host_recipe_free(c);
    linnet_status status = read_head(bytes, size, &count, &rest, error);
    if (status != LINNET_OK) return status;
    host_recipe *recipe = a->alloc(a->context, bytes_of(count), 64);
    if (recipe == NULL) return ln_host_no_memory(c->host, bytes_of(count), error);
    *recipe = (host_recipe){.size = get64(bytes), .file = -1, .count = count, .lacking = count};
    memcpy(recipe->digest, bytes + 16, LN_SHA256);
    c->recipe = recipe;
    status = read_holes(recipe, bytes + LN_REMOTE_RECIPE_BYTES, size - rest, error);
    if (status == LINNET_OK) status = begin_file(c, error);
    if (status != LINNET_OK) {
        ln_host_recipe_free(c);
        return status;
    }
    write_rest(recipe, bytes + rest);
    return LINNET_OK;
}

void ln_host_recipe_constant(host_connection *c, const unsigned char *bytes, size_t size) {
    unsigned char digest[LN_SHA256];
    host_recipe *recipe = c->recipe;
    if (recipe == NULL || recipe->lacking == 0) return;
    if (bytes == NULL) {
        recipe->dropped = size;
        return;
    }
    ln_sha256(bytes, size, digest);
    for (int i = 0; i < recipe->count; i++) {
        host_hole *hole = &recipe->holes[i];
        if (hole->filled || hole->bytes != size || memcmp(hole->digest, digest, LN_SHA256) != 0) continue;
        hole->filled = ln_host_recipe_write(recipe, hole->offset, bytes, size);
        recipe->lacking -= hole->filled;
    }
}

/* ---- the whole file ---------------------------------------------------------------------------------------------- */

static bool read_part(const host_recipe *recipe, uint64_t offset, void *to, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(recipe->file, (char *)to + done, size - done, (off_t)(offset + done));
        if (n > 0) done += (size_t)n;
        if (n == 0 || (n < 0 && errno != EINTR)) return false;
    }
    return true;
}

static bool hash(const host_recipe *recipe, unsigned char digest[LN_SHA256]) {
    unsigned char part[PART];
    ln_sha256_state state = ln_sha256_begin();
    if (recipe->file < 0) {
        ln_sha256(recipe->memory, (size_t)recipe->size, digest);
        return true;
    }
    for (uint64_t at = 0; at < recipe->size; at += PART) {
        const size_t size = recipe->size - at < PART ? (size_t)(recipe->size - at) : PART;
        if (!read_part(recipe, at, part, size)) return false;
        ln_sha256_add(&state, part, size);
    }
    ln_sha256_end(&state, digest);
    return true;
}

/* The file becomes the connection's piece, in memory. */
static linnet_status to_memory(host_connection *c, const unsigned char digest[LN_SHA256], linnet_error *error) {
    host_recipe *recipe = c->recipe;
    const linnet_allocator *a = &c->host->allocator;
    if (recipe->memory == NULL) recipe->memory = a->alloc(a->context, (size_t)recipe->size, 64);
    if (recipe->memory == NULL) return ln_host_no_memory(c->host, recipe->size, error);
    if (recipe->file >= 0 && !read_part(recipe, 0, recipe->memory, (size_t)recipe->size))
        return ln_sync_fail(error, LINNET_READ_FAILED, "the host cannot read a file of its folder");
    a->free(a->context, c->piece, c->piece_room);
    c->piece = recipe->memory, c->piece_size = c->piece_room = (size_t)recipe->size;
    memcpy(c->piece_digest, digest, LN_SHA256);
    recipe->memory = NULL;
    return LINNET_OK;
}

bool ln_host_recipe_is(const host_connection *c, const unsigned char digest[LN_SHA256]) {
    return c->recipe != NULL && memcmp(c->recipe->digest, digest, LN_SHA256) == 0;
}

linnet_status ln_host_recipe_end(host_connection *c, const unsigned char digest[LN_SHA256], linnet_error *error) {
    host_recipe *recipe = c->recipe;
    unsigned char found[LN_SHA256];
    linnet_status status = LINNET_OK;
    if (!ln_host_recipe_is(c, digest) || (recipe->lacking > 0 && recipe->dropped == 0 && !recipe->unwritten))
        return LINNET_OK;
    if (recipe->dropped > 0) {
        status = ln_host_no_memory(c->host, recipe->dropped, error);
    } else if (recipe->unwritten || !hash(recipe, found)) {
        ln_sync_fail(error, LINNET_WRITE_FAILED, "the host cannot write a piece to its folder");
        status = ln_sync_hint(error, "see whether the disk of the host is full");
    } else if (memcmp(found, digest, LN_SHA256) != 0) {
        ln_sync_fail(error, LINNET_PROTOCOL_ERROR, "a client sent a recipe that does not make its piece");
        status = ln_sync_hint(error, "use the same version of linnet on both sides");
    } else if (recipe->file >= 0 && ln_host_folder_keep(&c->host->config, digest, recipe->path)) {
        close(recipe->file);
        recipe->file = -1;
    } else { /* there is no folder, or the file was removed from it meanwhile */
        status = to_memory(c, digest, error);
    }
    ln_host_recipe_free(c);
    return status;
}
