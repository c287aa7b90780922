/* transport_shm.h - shared memory as a medium, and the socket that hands it over. */
#ifndef LN_NET_TRANSPORT_SHM_H
#define LN_NET_TRANSPORT_SHM_H

#include "net/transport_medium.h"

extern const ln_net_medium ln_net_shm_medium;

/* Sets the stage that follows when the socket is connected. With `shared_memory`, the server sends the memory's
 * descriptor and the client receives it. Without `shared_memory`, the next stage is that of ln_net_stage_security. */
void ln_net_stage_after_socket(ln_net_transport *transport, bool shared_memory);

#endif
