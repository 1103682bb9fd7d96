/* forwarder.c - clv_forwarder: forward passes on batches of any shape, giving hidden states, logits or per-token
 * loss.
 */
#include "infer/forward/forwarder.h"
#include "models/model.h"

static clv_status check(const clv_model *model, clv_forward_result result, clv_error *err)
{
    if (result != CLV_FORWARD_HIDDEN && result != CLV_FORWARD_LOGITS && result != CLV_FORWARD_NLL)
        return clv_fail(err, CLV_EINVAL, "result %d of a forwarder; valid: those of clv_forward_result", (int)result);
    if (model->config.headless && result != CLV_FORWARD_HIDDEN)
        return clv_fail(err, CLV_EUNSUPPORTED, "this %s has no head, and so no probabilities",
                        clv_model_config_model_type(&model->config));
    return CLV_OK;
}

clv_status clv_forwarder_new(clv_forwarder **out, const clv_model *model, const clv_forwarder_options *options,
                             clv_error *err)
{
    clv_forwarder_options taken;
    CLV_TRY(clv_require(out && model, __func__, "out and a model", err));
    CLV_TRY(clv_options_copy_in(&taken, sizeof taken, sizeof taken, options, __func__, err));
    CLV_TRY(check(model, taken.result, err));
    clv_forwarder *f = calloc(1, sizeof *f);
    if (!f)
        return clv_fail_memory(err, "a model's run", sizeof *f);
    f->model = model;
    f->result = taken.result;
    clv_status status = clv_model_open_session(&f->session, model, false, err);
    if (status == CLV_OK)
        *out = f;
    else
        free(f);
    return status;
}

void clv_forwarder_free(clv_forwarder *f)
{
    if (!f)
        return;
    clv_session_free(f->session);
    clv_program_free(f->program);
    free(f);
}

static clv_value result_of(clv_graph *graph, const clv_forwarder *f, const clv_model_graph_options *how)
{
    clv_value hidden = CLV_NONE, logits = clv_model_forward(graph, f->model, how, &hidden);
    if (f->result == CLV_FORWARD_HIDDEN)
        return hidden;
    if (f->result == CLV_FORWARD_LOGITS)
        return logits;
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    clv_layout layout = clv_named_layout(graph, &f->model->rules, 2, names);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){how->batch, how->seq}, &layout);
    return clv_cross_entropy(graph, logits, labels, CLV_IGNORE_INDEX);
}

static clv_status compile(clv_forwarder *f, int64_t batch, int64_t seq, clv_error *err)
{
    clv_graph *graph;
    if (f->program && f->batch == batch && f->seq == seq)
        return CLV_OK;
    if (f->program)
        clv_session_unload(f->session, f->program);
    clv_program_free(f->program);
    f->program = NULL;
    CLV_TRY(clv_graph_new(&graph, &f->model->mesh, err));
    clv_model_graph_options how = {.batch = batch, .seq = seq, .padding_mask = 1};
    clv_output(graph, "result", clv_cast(graph, result_of(graph, f, &how), CLV_F32), NULL);
    clv_status status = clv_model_compile(&f->program, f->model, graph, err);
    clv_graph_free(graph);
    f->batch = batch;
    f->seq = seq;
    return status;
}

/* Copies the batch, and checks it. */
static clv_status take(clv_forward_batch *out, const clv_forwarder *f, const clv_forward_batch *given, const char *call,
                       clv_error *err)
{
    CLV_TRY(clv_require(f && given, call, "a forwarder and a batch", err));
    CLV_TRY(clv_options_copy_in(out, sizeof *out, sizeof *out, given, call, err));
    CLV_TRY(clv_require(out->ids && out->mask && (out->labels || f->result != CLV_FORWARD_NLL), call,
                        "ids, a mask, and labels where their loss is asked for", err));
    if (out->batch >= 1 && out->seq >= 1)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: %lld sequences of %lld tokens; valid: 1 and above", call,
                    (long long)out->batch, (long long)out->seq);
}

clv_status clv_forwarder_run(clv_forwarder *f, const clv_forward_batch *given, float *out, clv_error *err)
{
    clv_forward_batch b;
    int64_t counted;
    CLV_TRY(take(&b, f, given, __func__, err));
    CLV_TRY(clv_require(out != NULL, __func__, "where the results go", err));
    CLV_TRY(clv_model_config_check_ids(&f->model->config, b.ids, b.batch, b.seq, err));
    if (f->result == CLV_FORWARD_NLL)
        CLV_TRY(clv_model_config_check_labels(&f->model->config, b.labels, b.batch, b.seq, &counted, err));
    CLV_TRY(compile(f, b.batch, b.seq, err));
    clv_input_binding inputs[] = {{"ids", b.ids}, {"mask", b.mask}, {"labels", b.labels}};
    clv_output_binding outputs[] = {{"result", out}};
    return clv_session_run(f->session, f->program, inputs, f->result == CLV_FORWARD_NLL ? 3 : 2, outputs, 1, err);
}

clv_status clv_forwarder_find_nonfinite(clv_forwarder *f, const clv_forward_batch *b, float *out, clv_error *err)
{
    CLV_TRY(clv_require(f && b && out, __func__, "a forwarder, a batch and out", err));
    clv_session_free(f->session);
    f->session = NULL;
    CLV_TRY(clv_model_open_session(&f->session, f->model, true, err));
    return clv_forwarder_run(f, b, out, err);
}

/* Index of the first result that counts and is NaN or infinite; -1: none. */
static int64_t first_nonfinite(const clv_forwarder *f, const clv_forward_batch *b, const float *out, int64_t width)
{
    for (int64_t i = 0; i < b->batch * b->seq; i++) {
        bool counts = f->result == CLV_FORWARD_NLL ? b->labels[i] != CLV_IGNORE_INDEX : b->mask[i] != 0;
        int64_t at = counts ? clv_dtype_first_nonfinite(CLV_F32, out + i * width, width) : -1;
        if (at >= 0)
            return i * width + at;
    }
    return -1;
}

clv_status clv_forwarder_run_checked(clv_forwarder *f, const clv_forward_batch *batch, float *out, bool allow_nonfinite,
                                     clv_forward_describe_callback *describe, const void *arg, clv_error *err)
{
    char name[256];
    CLV_TRY(clv_forwarder_run(f, batch, out, err));
    const int64_t width = f->result == CLV_FORWARD_HIDDEN   ? f->model->config.hidden
                          : f->result == CLV_FORWARD_LOGITS ? f->model->config.vocab
                                                            : 1;
    const int64_t at = allow_nonfinite ? -1 : first_nonfinite(f, batch, out, width);
    if (at < 0)
        return CLV_OK;
    const float value = out[at];
    clv_error why = {0};
    describe(name, sizeof name, arg, at / width / batch->seq, at / width % batch->seq);
    clv_forwarder_find_nonfinite(f, batch, out, &why);
    return clv_model_fail_nonfinite(name, (double)value, &why, err);
}

clv_status clv_forwarder_require_result(const clv_forwarder *f, clv_forward_result result, const char *call,
                                        clv_error *err)
{
    static const char *const names[] = {"CLV_FORWARD_HIDDEN", "CLV_FORWARD_LOGITS", "CLV_FORWARD_NLL"};
    CLV_TRY(clv_require(f != NULL, call, "a forwarder", err));
    if (f->result == result)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: the forwarder was made for %s; %s is needed", call, names[f->result],
                    names[result]);
}
