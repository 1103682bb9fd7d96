/* evaluation.h - what an evaluation was given. */
#ifndef CLEAVE_INFER_EVALUATION_H
#define CLEAVE_INFER_EVALUATION_H

#include "cleave/evaluate.h"

const clv_evaluate_options *clv_evaluation_given(const clv_evaluation *evaluation);

#endif
