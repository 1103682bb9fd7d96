/* forward_run.h - a model run on the ids of a file, its results written to another: what forward does, and verify --against. */
#ifndef CLEAVE_CLI_FORWARD_RUN_H
#define CLEAVE_CLI_FORWARD_RUN_H

#include "cli/model_option.h"

typedef struct clv_forward_job {
    const clv_model_option *model;
    /* safetensors with ids [B,S] and, optionally, mask [B,S] (1, and 0 = padding) and token_types [B,S], integers. */
    const char *ids;
    bool among_results; /* the file may hold other tensors, too; else it may not */
    /* safetensors for what was given, hidden.last [B,S,M], logits [B,S,V] (with a head), of decoders loss [1], where a token follows
     * another one, and, with gradients, grad.<name>. */
    const char *out;
    bool gradients;
    bool allow_nonfinite; /* results that are NaN or infinite are written, too; else they are CLV_ENONFINITE */
    clv_error *why;       /* where what is not finite begins, if it is allowed and there; NULL: not asked for */
    double *seconds;      /* of the run itself, without loading; NULL: not asked for */
} clv_forward_job;

clv_status clv_forward_run(const clv_forward_job *job, const char *command, clv_error *err);

#endif
