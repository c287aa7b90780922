/* host_plan.h - plans a piece as the owner of the host permits. */
#ifndef LN_REMOTE_HOST_PLAN_H
#define LN_REMOTE_HOST_PLAN_H

#include "remote/host_state.h"

/* precision: a linnet_precision, from the client. */
linnet_status ln_host_plan(ln_host *host, linnet_model *model, int precision, linnet_plan **plan, linnet_error *error);

#endif
