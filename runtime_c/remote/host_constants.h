/* host_constants.h - finds the constants of a recipe in what a host has: models in memory, and the .lnt files of its
 * folder, also those that its owner has put there. */
#ifndef LN_REMOTE_HOST_CONSTANTS_H
#define LN_REMOTE_HOST_CONSTANTS_H

#include "remote/host_recipe.h"

/* Fills the holes for which the host has the constants. */
void ln_host_constants_fill(ln_host *host, host_recipe *recipe);

#endif
