/* host_recipe.h - the file of a piece that is put together: a client sends the file without its large constants, the
 * holes, and each constant that the host does not have. */
#ifndef LN_REMOTE_HOST_RECIPE_H
#define LN_REMOTE_HOST_RECIPE_H

#include "remote/host_folder.h"
#include "remote/host_state.h"

typedef struct host_hole {
    uint64_t offset, bytes; /* in the file */
    uint32_t checksum;      /* CRC-32C of the constant, by which the host looks for it */
    bool filled;
    unsigned char digest[LN_SHA256]; /* by which it knows that it has found it */
} host_hole;

/* The file is in the folder, or in memory if it cannot be there. */
typedef struct host_recipe {
    uint64_t size;                   /* of the file */
    uint64_t dropped;                /* bytes of a constant for which there was no memory; 0: none */
    unsigned char digest[LN_SHA256]; /* that the file must have */
    bool unwritten;                  /* the folder could not be written to */
    int file;                        /* -1: in memory */
    unsigned char *memory;
    char path[LN_HOST_PATH];
    int count, lacking; /* holes, and those that are not filled yet */
    host_hole holes[];
} host_recipe;

/* Begins the file that a RECIPE describes, instead of the connection's last one. */
linnet_status ln_host_recipe_begin(host_connection *c, const unsigned char *bytes, size_t size, linnet_error *error);
/* Puts a constant into its holes. One that belongs to no hole has no effect. `bytes` NULL: there was no memory for it.
 */
void ln_host_recipe_constant(host_connection *c, const unsigned char *bytes, size_t size);
/* If the connection has a recipe for the file of this digest, and no hole is open, ends it: the file is then in the
 * folder, or is the connection's piece. Fails if the file has another digest, or could not be written. */
linnet_status ln_host_recipe_end(host_connection *c, const unsigned char digest[LN_SHA256], linnet_error *error);
/* Tells whether the connection has a recipe for the file of this digest. */
bool ln_host_recipe_is(const host_connection *c, const unsigned char digest[LN_SHA256]);
void ln_host_recipe_free(host_connection *c);

/* Writes a part of the file. */
bool ln_host_recipe_write(host_recipe *recipe, uint64_t offset, const void *bytes, size_t size);

#endif
