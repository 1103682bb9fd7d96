#include "infer/forwarder.h"

#include <stdlib.h>

#include "base/error.h"

struct clv_forwarder {
    const clv_model_config *model;
    clv_forwarder_options options;
    clv_checkpoint *weights;
    clv_mesh mesh;
    clv_session *session;
    clv_program *program; /* of batch x seq; NULL: none yet */
    int64_t batch, seq;
};

static clv_status open_session(clv_forwarder *f, bool find_nonfinite, clv_error *err)
{
    clv_session_options options = {.threads_per_rank = f->options.threads_per_rank,
                                   .source = clv_checkpoint_source,
                                   .source_arg = f->weights,
                                   .check = f->options.check,
                                   .find_nonfinite = find_nonfinite};
    return clv_session_new(&f->session, &f->mesh, &options, err);
}

clv_status clv_forwarder_new(clv_forwarder **out, const clv_model_config *model, clv_checkpoint *weights,
                             const clv_mesh *mesh, const clv_forwarder_options *options, clv_error *err)
{
    if (model->headless && options->result != CLV_FORWARD_HIDDEN)
        return clv_fail(err, CLV_EUNSUPPORTED, "this %s has no head, and so no probabilities",
                        clv_model_config_type(model));
    clv_forwarder *f = calloc(1, sizeof *f);
    if (!f)
        return clv_fail_memory(err, "a model's run", sizeof *f);
    f->model = model;
    f->options = *options;
    f->weights = weights;
    f->mesh = *mesh;
    clv_status status = open_session(f, false, err);
    if (status != CLV_OK) {
        free(f);
        return status;
    }
    *out = f;
    return CLV_OK;
}

void clv_forwarder_free(clv_forwarder *f)
{
    if (!f)
        return;
    clv_session_free(f->session);
    clv_program_free(f->program);
    free(f);
}

static clv_value result_of(clv_graph *graph, const clv_forwarder *f, const clv_model_build *build)
{
    clv_value hidden = CLV_NONE, logits = clv_model_forward(graph, f->model, build, &hidden);
    if (f->options.result == CLV_FORWARD_HIDDEN)
        return hidden;
    if (f->options.result == CLV_FORWARD_LOGITS)
        return logits;
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_UNNAMED};
    clv_layout layout = clv_named_layout(graph, &build->rules, 2, names);
    clv_value labels = clv_input(graph, "labels", CLV_I32, 2, (int64_t[]){build->batch, build->seq}, &layout);
    return clv_cross_entropy(graph, logits, labels, CLV_FORWARD_IGNORED);
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
    CLV_TRY(clv_graph_new(&graph, &f->mesh, err));
    clv_model_build build = {
        .batch = batch, .seq = seq, .rules = f->options.rules, .dtype = f->options.dtype, .padding_mask = true};
    clv_output(graph, "result", clv_cast(graph, result_of(graph, f, &build), CLV_F32), NULL);
    clv_status status = clv_compile(&f->program, graph, NULL, err);
    clv_graph_free(graph);
    f->batch = batch;
    f->seq = seq;
    return status;
}

clv_status clv_forwarder_run(clv_forwarder *f, const clv_forward_batch *b, float *out, clv_error *err)
{
    CLV_TRY(compile(f, b->batch, b->seq, err));
    clv_binding inputs[] = {{"ids", (void *)b->ids}, {"mask", (void *)b->mask}, {"labels", (void *)b->labels}};
    clv_binding outputs[] = {{"result", out}};
    return clv_session_run(f->session, f->program, inputs, f->options.result == CLV_FORWARD_NLL ? 3 : 2, outputs, 1,
                           err);
}

clv_forward_place clv_forwarder_first_nonfinite(const clv_forwarder *f, const clv_forward_batch *b, const float *out)
{
    int64_t width = f->options.result == CLV_FORWARD_HIDDEN   ? f->model->hidden
                    : f->options.result == CLV_FORWARD_LOGITS ? f->model->vocab
                                                              : 1;
    for (int64_t i = 0; i < b->batch * b->seq; i++) {
        bool counts = f->options.result == CLV_FORWARD_NLL ? b->labels[i] != CLV_FORWARD_IGNORED : b->mask[i] != 0;
        int64_t at = counts ? clv_dtype_first_nonfinite(CLV_F32, out + i * width, width) : -1;
        if (at >= 0)
            return (clv_forward_place){i / b->seq, i % b->seq, (double)out[i * width + at]};
    }
    return (clv_forward_place){.row = -1};
}

clv_status clv_forwarder_find_nonfinite(clv_forwarder *f, const clv_forward_batch *b, float *out, clv_error *err)
{
    clv_session_free(f->session);
    f->session = NULL;
    CLV_TRY(open_session(f, true, err));
    return clv_forwarder_run(f, b, out, err);
}
