/* log.h - messages to the host program (linnet_model_config.log). The library itself never prints. A message is for a
 * fact that a user would want to know and that no result shows. Errors are not logged; functions return them. */
#ifndef LN_LOG_H
#define LN_LOG_H

#include "base/error.h"

/* Where messages go. A model owns its target, so everything that is made from the model can send messages. */
typedef struct ln_log_target {
    linnet_log log; /* NULL: messages are dropped */
    void *context;  /* the first argument of `log` */
} ln_log_target;

/* Sends one sentence. A text of more than 511 bytes is truncated. Does nothing if there is no target function. */
void ln_log(const ln_log_target *target, linnet_log_level level, const char *format, ...) LN_PRINTF(3, 4);

#endif
