/* operands.c - where a value is for the steps of a program.
 */
#include "plan/compile/operands.h"

#include "plan/compile/program.h"

ln_operand ln_operand_of(const ln_work *w, int32_t value) {
    ln_operand operand = {0};
    if (value < 0) return operand;
    const ln_work_value *v = ln_value_at(w, value);
    if (v->host != NULL && ln_on_cpu(v->device)) {
        operand.region = LN_REGION_HOST;
        operand.pointer = v->host;
        return operand;
    }
    const ln_home home = ln_home_of(w, value);
    if (home.buffer < 0) return operand; /* an optional output that nothing reads */
    const ln_work_buffer *b = ln_buffer_at(w, home.buffer);
    operand.region = b->kind;
    operand.device = b->device;
    operand.index = b->chunk;
    operand.offset = (uint64_t)home.offset;
    if (b->kind == LN_REGION_VARIABLE || b->kind == LN_REGION_IMPORT)
        operand.index = (int32_t)b->offset; /* the number of the variable or of the imported value */
    else
        operand.offset += b->offset;
    return operand;
}
