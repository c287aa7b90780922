/* operands.h - tells where a value is when the program runs. */
#ifndef LN_PLAN_COMPILE_OPERANDS_H
#define LN_PLAN_COMPILE_OPERANDS_H

#include "plan/compile/program.h"

/* Returns where the value is. */
ln_operand ln_operand_of(const ln_work *w, int32_t value);

#endif
