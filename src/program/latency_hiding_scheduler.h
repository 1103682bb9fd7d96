/* latency_hiding_scheduler.h - list scheduler: reorders instructions so that collectives overlap with compute. */
#ifndef CLEAVE_PROGRAM_LATENCY_HIDING_SCHEDULER_H
#define CLEAVE_PROGRAM_LATENCY_HIDING_SCHEDULER_H

#include "program/program.h"

/* Orders instructions anew so that steps that move run beside ops that do not need them (clv_instruction.beside), by
 * what they take on the machine (NULL: the default one), with steps and their products in parts (chunk_collectives.h)
 * if that makes it shorter. Values are the same, bit for bit, but where products are cut (there). Before memory is
 * planned. */
clv_status clv_program_schedule_overlap(clv_program *program, const clv_machine *machine, clv_error *err);

#endif
