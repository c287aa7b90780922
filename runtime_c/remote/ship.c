/* ship.c - sends a piece to a host: a recipe first, and then each constant that the host lacks, once. */
#include "remote/ship.h"

#include "net/bytes.h"
#include "net/error.h"

#include <stdlib.h>
#include <string.h>

static unsigned char *hole_at(unsigned char *recipe, int i) {
    return recipe + LN_REMOTE_RECIPE_BYTES + LN_REMOTE_HOLE_BYTES * (size_t)i;
}

static void write_recipe(const ln_piece *piece, const unsigned char *digest, unsigned char *recipe) {
    put64(recipe, piece->size);
    put64(recipe + 8, (uint64_t)piece->hole_count);
    memcpy(recipe + 16, digest, LN_SHA256);
    for (int i = 0; i < piece->hole_count; i++) {
        const ln_piece_hole *hole = &piece->holes[i];
        unsigned char *at = hole_at(recipe, i);
        put64(at, hole->offset);
        put64(at + 8, hole->bytes);
        put32(at + 16, hole->checksum);
        put32(at + 20, 0);
        ln_sha256(hole->data, (size_t)hole->bytes, at + 24);
    }
    memcpy(hole_at(recipe, piece->hole_count), piece->bytes, piece->rest);
}

/* Tells whether an earlier hole has the same constant. */
static bool is_again(unsigned char *recipe, int i) {
    const unsigned char *digest = hole_at(recipe, i) + 24;
    for (int n = 0; n < i; n++)
        if (memcmp(hole_at(recipe, n) + 24, digest, LN_SHA256) == 0) return true;
    return false;
}

linnet_status ln_piece_ship(ln_remote_queue *queue, const ln_piece *piece, const unsigned char digest[LN_SHA256],
                            linnet_error *error) {
    const size_t size = LN_REMOTE_RECIPE_BYTES + LN_REMOTE_HOLE_BYTES * (size_t)piece->hole_count + piece->rest;
    unsigned char *recipe = malloc(size), *lacks = malloc((size_t)piece->hole_count + 1);
    linnet_status status = LINNET_OK;
    if (recipe == NULL || lacks == NULL) {
        status = ln_sync_fail(error, LINNET_OUT_OF_MEMORY, "cannot allocate memory for a message to a host");
    } else {
        write_recipe(piece, digest, recipe);
        status = ln_remote_queue_recipe(queue, recipe, size, lacks, piece->hole_count, error);
        for (int i = 0; status == LINNET_OK && i < piece->hole_count; i++)
            if (lacks[i] && !is_again(recipe, i))
                status = ln_remote_queue_constant(queue, piece->holes[i].data, (size_t)piece->holes[i].bytes, error);
    }
    free(recipe);
    free(lacks);
    return status;
}
