/* log.h - messages to the host (linnet_model_config.log). The library itself never prints.
 * For what a user would want to know and no result shows; errors are reported as errors. */
#ifndef LN_LOG_H
#define LN_LOG_H

#include "base/error.h"

typedef struct ln_log_target {
    linnet_log log; /* NULL: messages are dropped */
    void *context;
} ln_log_target;

/* Sends one sentence; text beyond 511 bytes is cut off. */
void ln_log(const ln_log_target *target, linnet_log_level level, const char *format, ...) LN_PRINTF(3, 4);

#endif
