/* evaluate.h - the options of a clv_evaluation, for compare_evaluations.c. */
#ifndef CLEAVE_INFER_FORWARD_EVALUATE_H
#define CLEAVE_INFER_FORWARD_EVALUATE_H

#include "cleave/evaluate.h"

const clv_evaluate_options *clv_evaluation_get_options(const clv_evaluation *evaluation);

#endif
