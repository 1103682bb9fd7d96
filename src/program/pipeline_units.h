/* pipeline_units.h - what the instructions of a program with pipeline stages belong to: a microbatch, a virtual stage,
 * a pass. */
#pragma once

#include "program/program.h"

/* A part of a microbatch's work. BACKWARD: what no other stage waits for, as gradients of weights. */
typedef enum clv_pipeline_pass {
    CLV_PASS_TO_STAGE_BEFORE,
    CLV_PASS_BACKWARD,
    CLV_PASS_FORWARD,
    CLV_PASS_OTHER,
    CLV_PIPELINE_PASSES
} clv_pipeline_pass;

typedef struct clv_pipeline_unit {
    int microbatch; /* 0: none */
    int depth;      /* the virtual stage */
    clv_pipeline_pass pass;
} clv_pipeline_unit;

/* units: [n_instructions]; edges: those of clv_program_find_edges. arena: for scratch. */
clv_status clv_find_pipeline_units(clv_pipeline_unit *units, const clv_program *program,
                                   const clv_instruction_edges *edges, clv_arena *arena, clv_error *err);

static inline bool clv_instruction_sends(const clv_instruction *instruction)
{
    return !instruction->op && instruction->step->kind == CLV_STEP_SEND;
}
