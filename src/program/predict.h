/* predict.h - how long a program takes on a machine: every instruction priced, in order, none hidden behind another
 * (the executor overlaps nothing yet).
 *
 *   a compute instruction   instruction_s + work / measured rate(op, dtype, work), where the profile has one; else
 *                           instruction_s + max(flops / (flops_per_s * efficiency), bytes / memory_bytes_per_s)
 *   a step that moves       bytes / measured rate(kind, dtype, bytes), else alpha_s + bytes / bytes_per_s of the link: the network's
 *                           when its group holds ranks of several hosts (ranks are row-major over the mesh)
 *   a slice, a mask         2 bytes / memory_bytes_per_s
 *
 * all times ranks / (hosts * ranks_per_host) where ranks outnumber the places. Work: the fullest rank's. */
#ifndef CLEAVE_PROGRAM_PREDICT_H
#define CLEAVE_PROGRAM_PREDICT_H

#include "program/machine.h"
#include "program/program.h"

/* What instruction i works on the fullest rank: flops and bytes of memory traffic; zeros for steps. */
clv_op_cost clv_instruction_cost(const clv_program *program, int i);
/* Whether the rates of an op are of flops (products, attention) or of bytes. */
bool clv_op_counts_flops(const clv_op_def *def);
/* The dtype that an instruction is rated by: its first operand's. */
clv_dtype clv_instruction_dtype(const clv_program *program, int i);

#endif
