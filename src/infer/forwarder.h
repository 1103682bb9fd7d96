/* forwarder.h - what is made of batches' results asks this of a forwarder, beside forward.h. */
#ifndef CLEAVE_INFER_FORWARDER_H
#define CLEAVE_INFER_FORWARDER_H

#include <stdbool.h>

#include "cleave/forward.h"

/* Says what stands at a place of a batch: "one: token 5". */
typedef void clv_forward_describe(char *out, size_t size, const void *arg, int64_t row, int64_t token);

/* Runs a batch, and refuses results that are NaN or infinite where they count, unless they are allowed: CLV_ENONFINITE,
 * "<place> is nan; it begins at <instruction>". */
clv_status clv_forwarder_run_checked(clv_forwarder *forwarder, const clv_forward_batch *batch, float *out,
                                     bool allow_nonfinite, clv_forward_describe *describe, const void *arg,
                                     clv_error *err);

/* CLV_EINVAL unless there is a forwarder, and it gives this result. */
clv_status clv_forwarder_expect(const clv_forwarder *forwarder, clv_forward_result result, const char *call,
                                clv_error *err);
const clv_model *clv_forwarder_model(const clv_forwarder *forwarder);

#endif
