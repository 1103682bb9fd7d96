/* forwarder.h - struct clv_forwarder; runs a batch with a check for NaN and infinity. */
#pragma once

#include <stdbool.h>

#include "cleave/forward.h"

enum { CLV_BATCH_TOKENS = 4096 }; /* default of the options batch_tokens */

struct clv_forwarder {
    const clv_model *model;
    clv_forward_result result;
    clv_session *session;
    clv_program *program; /* of shape batch x seq; NULL: none yet */
    int64_t batch, seq;
};

/* Writes the name of a result: "one: the loss of token 5". */
typedef void clv_forward_describe_callback(char *out, size_t size, const void *arg, int64_t row, int64_t token);

/* Runs a batch. Unless allow_nonfinite, checks the results at tokens (for CLV_FORWARD_NLL, at labels): CLV_ENONFINITE,
 * "<description> is nan; it begins at <instruction>". */
clv_status clv_forwarder_run_checked(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                     bool allow_nonfinite, clv_forward_describe_callback *describe, const void *arg,
                                     clv_error *err);

/* CLV_EINVAL for NULL, and unless the forwarder gives this result. */
clv_status clv_forwarder_require_result(const clv_forwarder *forwarder, clv_forward_result result, const char *call,
                                        clv_error *err);
