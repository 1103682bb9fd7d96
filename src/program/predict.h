/* predict.h - a program's instructions, as cost.h prices them. */
#ifndef CLEAVE_PROGRAM_PREDICT_H
#define CLEAVE_PROGRAM_PREDICT_H

#include "program/cost.h"
#include "program/program.h"

/* What instruction i works on the fullest rank: flops and bytes of memory traffic; zeros for steps. */
clv_op_cost clv_instruction_cost(const clv_program *program, int i);
/* What it takes by itself. */
double clv_instruction_seconds(const clv_program *program, const clv_cost_model *model, int i);
/* The dtype that an instruction is rated by: its first operand's. */
clv_dtype clv_instruction_dtype(const clv_program *program, int i);

#endif
