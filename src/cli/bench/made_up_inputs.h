/* made_up_inputs.h - makes inputs for the program of any plan, so that it can be timed: a model's ids and labels, a
 * block's x. */
#pragma once

#include "cleave/plan.h"
#include "cleave/session.h"

enum { CLV_MOST_MADE_UP_INPUTS = 16 };

typedef struct clv_made_up_inputs {
    int n;
    clv_input_binding binding[CLV_MOST_MADE_UP_INPUTS]; /* names live with the program; data is owned */
} clv_made_up_inputs;

/* Values for a program that was compiled from `plan`; vocab: of its model, else 1. Free with clv_made_up_inputs_free,
 * on failure, too. */
clv_status clv_made_up_inputs_make(clv_made_up_inputs *out, const clv_program *program, const clv_plan_options *plan,
                                   int64_t vocab, clv_error *err);
void clv_made_up_inputs_free(clv_made_up_inputs *inputs);
