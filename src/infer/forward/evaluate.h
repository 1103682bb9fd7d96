/* evaluate.h - struct clv_evaluation: the options and results of one evaluation. */
#pragma once

#include "cleave/evaluate.h"
#include "io/checkpoint/safetensors.h"

enum { CLV_RESULT_NAME_SIZE = 300 };

typedef struct clv_evaluation_result {
    char name[CLV_RESULT_NAME_SIZE];
    int rank;
    int64_t shape[CLV_MAX_RANK];
    int64_t elems;
    float *data;
} clv_evaluation_result;

struct clv_evaluation {
    const clv_model *model;
    clv_evaluate_options options;
    clv_program *program;
    int n, n_ops, n_forward; /* results: n_ops of ops; hidden.last, logits, loss; gradients from n_forward on */
    clv_evaluation_result *result;
    int64_t capacity; /* of result */
    double seconds;
    clv_error origin; /* of non-finite values: CLV_ENONFINITE, or CLV_OK */
};
