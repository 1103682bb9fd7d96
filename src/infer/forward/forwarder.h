/* forwarder.h - internal functions of clv_forwarder: run with a check for NaN and infinity, require a kind of result.
 */
#ifndef CLEAVE_INFER_FORWARD_FORWARDER_H
#define CLEAVE_INFER_FORWARD_FORWARDER_H

#include <stdbool.h>

#include "cleave/forward.h"

/* Says what stands at a place of a batch: "one: token 5". */
typedef void clv_forward_describe_callback(char *out, size_t size, const void *arg, int64_t row, int64_t token);

/* Runs a batch, and refuses results that are NaN or infinite where they count, unless they are allowed: CLV_ENONFINITE,
 * "<place> is nan; it begins at <instruction>". */
clv_status clv_forwarder_run_checked(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                     bool allow_nonfinite, clv_forward_describe_callback *describe, const void *arg,
                                     clv_error *err);

/* CLV_EINVAL unless there is a forwarder, and it gives this result. */
clv_status clv_forwarder_require_result(const clv_forwarder *forwarder, clv_forward_result result, const char *call,
                                        clv_error *err);
const clv_model *clv_forwarder_model(const clv_forwarder *forwarder);

#endif
