/* continue.h - the segments after a program whose shapes depend on data. A plan computes their largest size, and a run
 * their true size. */
#ifndef LN_CONTINUE_H
#define LN_CONTINUE_H

#include "plan/plan.h"

/* The facts that are known after a program has run. All zero: nothing is known, so shapes have their upper bounds. */
typedef struct ln_known {
    const int64_t *dims;     /* program->n_dims rows of LN_MAX_RANK; NULL: upper bounds */
    const void *const *data; /* [export]: the value, if shapes depend on it; NULL: no value is known */
    int64_t iterations; /* if `data` is NULL: the number of iterations that is assumed for loops whose results grow */
} ln_known;

static inline const int64_t *ln_port_dims(const ln_port *port, const int64_t *dims) {
    return dims != NULL && port->dims_slot >= 0 ? dims + (size_t)port->dims_slot * LN_MAX_RANK : port->tensor.dims;
}
uint64_t ln_port_bytes(const ln_port *port, const int64_t *dims);

/* Makes *w a copy of the graph that waits for the program's results. Errors: OUT_OF_MEMORY. */
linnet_status ln_continue(ln_work *w, const ln_program *program, const ln_known *known, ln_memory *temporary,
                          ln_memory *persistent, ln_budget *budget, linnet_error *error);

/* Tells whether the output of a loop's body, which is a program, is stacked in a result that grows. */
static inline bool ln_port_grows(const ln_step *loop, const ln_port *port) {
    return port->index > 0 && loop->outputs[port->index - 1].region == LN_REGION_GROWN;
}
/* Returns the bytes that one iteration adds to the growing results of the step; 0 for other steps. */
uint64_t ln_grown_row(const ln_step *step);
struct ln_grown;
/* Returns the bytes that the plan reserves for growing results. grown: NULL, or where to write the size of each. */
uint64_t ln_reserved_bytes(const linnet_plan *plan, struct ln_grown *grown);
/* Reserves memory within max_bytes for the growing results of loops, and counts it. Errors: OUT_OF_MEMORY. */
linnet_status ln_plan_reserve(linnet_plan *plan, linnet_error *error);

#endif
