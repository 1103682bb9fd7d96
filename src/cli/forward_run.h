/* forward_run.h - a model run on the ids of a file, its results written to another: what forward does, and verify
 * --against. */
#ifndef CLEAVE_CLI_FORWARD_RUN_H
#define CLEAVE_CLI_FORWARD_RUN_H

#include "cli/model_option.h"

enum { CLV_BEGINS_TEXT = 512 };

typedef struct clv_forward_job {
    clv_model_option *model;
    const char *ids;    /* as ids_file.h reads it */
    bool among_results; /* the file may hold other tensors, too; else it may not */
    const char *out;    /* as clv_evaluation_write does; a loss where a decoder's token follows another one */
    bool gradients;
    bool allow_nonfinite; /* results that are NaN or infinite are written, too; else they are CLV_ENONFINITE */
    char *
        begins; /* [CLV_BEGINS_TEXT] where what is not finite begins, if it is allowed and there; NULL: not asked for */
    const char *trace_out; /* a trace of the run; NULL: none */
    double *seconds;       /* of the run itself, without loading; NULL: not asked for */
} clv_forward_job;

clv_status clv_forward_run(const clv_forward_job *job, const char *command, clv_error *err);

#endif
