/* scoring.c - option defaults and checks shared by perplexity, pseudo-likelihood and masked marginals. */
#include "infer/scoring/scoring.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/versioned_structs.h"

enum { USUAL_TOKENS = 4096 };

clv_status clv_scoring_begin(clv_scoring_call *out, clv_forwarder *forwarder, clv_forward_result result,
                             const clv_score_options *options, const char *call, clv_error *err)
{
    CLV_TRY(clv_forwarder_require_result(forwarder, result, call, err));
    *out = (clv_scoring_call){.forwarder = forwarder, .model = clv_forwarder_model(forwarder)};
    CLV_TRY(clv_options_copy_in(&out->options, sizeof out->options, sizeof out->options, options, call, err));
    if (out->options.batch_tokens < 0)
        return clv_fail(err, CLV_EINVAL, "%s: batch_tokens %lld; valid: 0 and above", call,
                        (long long)out->options.batch_tokens);
    out->options.batch_tokens = out->options.batch_tokens ? out->options.batch_tokens : USUAL_TOKENS;
    return CLV_OK;
}

clv_status clv_scoring_sequence(const clv_sequence **out, const clv_sequences *sequences, int64_t i, const char *call,
                                clv_error *err)
{
    CLV_TRY(clv_require(sequences != NULL, call, "sequences", err));
    if (i < 0 || i >= sequences->n)
        return clv_fail(err, CLV_EINVAL, "%s: sequence %lld of %lld", call, (long long)i, (long long)sequences->n);
    *out = &sequences->item[i];
    return CLV_OK;
}
