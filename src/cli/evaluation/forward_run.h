/* forward_run.h - runs a model on a file of token ids and writes outputs and gradients: for forward and verify
 * --against.
 */
#pragma once

#include "cli/options/model_options.h"

enum { CLV_FIRST_NONFINITE_SIZE = 512 };

typedef struct clv_forward_request {
    clv_model_option *model;
    const char *ids;          /* the input file (input_batch_file.h) */
    bool allow_other_tensors; /* ignore other tensors of the input file; else they are an error */
    const char *out;          /* the output file (clv_evaluation_write) */
    bool gradients;
    bool allow_nonfinite;  /* write results that are NaN or infinite; else they are CLV_ENONFINITE */
    char *first_nonfinite; /* [CLV_FIRST_NONFINITE_SIZE] receives the first tensor that is NaN or infinite, or ""; NULL:
                              not searched for */
    const char *trace_out; /* NULL: no trace */
    double *seconds;       /* receives the time of the run, without loading; or NULL */
} clv_forward_request;

clv_status clv_forward_run(const clv_forward_request *request, const char *command, clv_error *err);

#define CLV_ALLOW_NONFINITE_OPTION(out)                                                                                \
    CLV_OPT_FLAG("--allow-nonfinite", out,                                                                             \
                 "continue when a result is NaN or infinite; else it is an error, and "                                \
                 "nothing is written")
/* Adds --allow-nonfinite to the message of a CLV_ENONFINITE. */
void clv_suggest_allow_nonfinite(clv_error *err);
