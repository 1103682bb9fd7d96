/* forward_run.c - runs a model on a file of token ids and writes outputs and gradients: for forward and verify
 * --against.
 */
#include "cli/evaluation/forward_run.h"

#include <stdio.h>
#include <string.h>
#include "cleave/evaluate.h"
#include "cli/input/input_batch_file.h"

void clv_suggest_allow_nonfinite(clv_error *err)
{
    size_t used = strlen(err->message);
    if (err->code == CLV_ENONFINITE)
        snprintf(err->message + used, sizeof err->message - used, "; --allow-nonfinite continues anyway");
}

static bool is_decoder(const clv_model_info *model)
{
    return !model->bidirectional && !model->headless;
}

/* The next token's, if any token has one. */
static bool has_loss(const clv_input_batch *in, const clv_model_info *model)
{
    bool labelled = false;
    for (int64_t i = 0; i < in->rows * in->columns && !labelled; i++)
        labelled = in->labels[i] != CLV_IGNORE_INDEX;
    return labelled && is_decoder(model);
}

static clv_status check(const clv_input_batch *in, const clv_model_info *model, const clv_forward_request *a,
                        clv_error *err)
{
    if (in->columns > model->max_positions)
        return clv_fail(err, CLV_EINVAL, "%s: %lld tokens a sequence; the model takes 1 to %lld", a->ids,
                        (long long)in->columns, (long long)model->max_positions);
    if (a->gradients && !is_decoder(model))
        return clv_fail(err, CLV_EINVAL, "gradients: %s has no next-token loss; valid for decoders", model->family);
    if (a->gradients && !has_loss(in, model))
        return clv_fail(err, CLV_EINVAL,
                        "gradients: %s: no token follows another one, so there is no loss; give two tokens", a->ids);
    return CLV_OK;
}

static clv_status evaluate(const clv_forward_request *a, const clv_model *model, const clv_model_info *info,
                           const clv_input_batch *in, clv_error *err)
{
    clv_evaluation *e;
    clv_evaluate_options what = {.size = sizeof what,
                                 .batch = in->rows,
                                 .seq = in->columns,
                                 .ids = in->ids,
                                 .mask = in->mask,
                                 .token_types = in->token_types,
                                 .labels = has_loss(in, info) ? in->labels : NULL,
                                 .gradients = a->gradients,
                                 .allow_nonfinite = a->allow_nonfinite,
                                 .find_nonfinite = a->first_nonfinite != NULL};
    clv_machine *machine;
    CLV_TRY(clv_hardware_option_open(&machine, a->model->hardware, NULL, err));
    const clv_trace_options trace = {.size = sizeof trace, .path = a->trace_out, .machine = machine};
    what.trace = a->trace_out ? &trace : NULL;
    clv_status status = clv_evaluate(&e, model, &what, err);
    clv_machine_free(machine);
    if (status != CLV_OK) {
        clv_suggest_allow_nonfinite(err);
        return status;
    }
    const char *first = clv_evaluation_nonfinite_origin(e);
    if (a->seconds)
        *a->seconds = clv_evaluation_seconds(e);
    if (a->first_nonfinite)
        snprintf(a->first_nonfinite, CLV_FIRST_NONFINITE_SIZE, "%s", first ? first : "");
    status = clv_evaluation_write(e, a->out, err);
    clv_evaluation_free(e);
    return status;
}

clv_status clv_forward_run(const clv_forward_request *job, const char *command, clv_error *err)
{
    clv_model *model;
    clv_input_batch in = {0};
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_option_open(&model, job->model, err));
    clv_status status = clv_model_get_info(model, &info, err);
    if (status == CLV_OK)
        status = clv_input_batch_read(&in, job->ids, &info, job->allow_other_tensors, err);
    if (status == CLV_OK)
        status = check(&in, &info, job, err);
    if (status == CLV_OK)
        clv_model_option_warnings(model, job->model, command);
    if (status == CLV_OK)
        status = evaluate(job, model, &info, &in, err);
    clv_input_batch_free(&in);
    clv_model_close(model);
    return status;
}
