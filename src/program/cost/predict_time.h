/* predict_time.h - predicted seconds, flops and bytes of single instructions. */
#ifndef CLEAVE_PROGRAM_COST_PREDICT_TIME_H
#define CLEAVE_PROGRAM_COST_PREDICT_TIME_H

#include "program/cost/cost_model.h"
#include "program/program.h"

/* What instruction i works on the fullest rank: flops and bytes of memory traffic; zeros for steps. */
clv_op_cost clv_instruction_cost(const clv_program *program, int i);
/* What it takes by itself. */
double clv_instruction_seconds(const clv_program *program, const clv_cost_model *model, int i);
/* The dtype that an instruction is rated by: its first operand's. */
clv_dtype clv_instruction_dtype(const clv_program *program, int i);

#endif
