/* forward_run.h - runs a model on a file of token ids and writes outputs and gradients: for forward and verify
 * --against.
 */
#ifndef CLEAVE_CLI_EVALUATION_FORWARD_RUN_H
#define CLEAVE_CLI_EVALUATION_FORWARD_RUN_H

#include "cli/options/model_options.h"

enum { CLV_FIRST_NONFINITE_SIZE = 512 };

typedef struct clv_forward_request {
    clv_model_option *model;
    const char *ids;          /* as token_ids_file.h reads it */
    bool allow_other_tensors; /* the file may hold other tensors, too; else it may not */
    const char *out;          /* as clv_evaluation_write does; a loss where a decoder's token follows another one */
    bool gradients;
    bool allow_nonfinite; /* results that are NaN or infinite are written, too; else they are CLV_ENONFINITE */
    char *begins; /* [CLV_FIRST_NONFINITE_SIZE] where what is not finite begins, if it is allowed and there; NULL: not
                   asked for */
    const char *trace_out; /* a trace of the run; NULL: none */
    double *seconds;       /* of the run itself, without loading; NULL: not asked for */
} clv_forward_request;

clv_status clv_forward_run(const clv_forward_request *job, const char *command, clv_error *err);

#endif
