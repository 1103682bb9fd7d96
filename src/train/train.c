#include "train/train.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "cleave/tokenizer.h"
#include "models/model_weights.h"
#include "models/parameters.h"

struct clv_trainer {
    clv_train_options options;
    const clv_text_data *data;
    clv_program *program;
    clv_session *session;
    int64_t step;
    int64_t *ids64, *labels64; /* [B,S] as the data makes them */
    int32_t *ids, *labels;
};

static clv_status compile(clv_trainer *t, const clv_mesh *mesh, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_graph_new(&graph, mesh, err));
    clv_model_build build = {
        .batch = t->options.batch, .seq = t->options.seq, .rules = t->options.rules, .dtype = CLV_F32};
    clv_build_train_step(graph, &t->options.model, &build, &t->options.adamw);
    clv_status status = clv_compile(&t->program, graph, NULL, err);
    clv_graph_free(graph);
    return status;
}

static clv_status make_buffers(clv_trainer *t, clv_error *err)
{
    size_t n = (size_t)(t->options.batch * t->options.seq);
    t->ids64 = malloc(n * sizeof *t->ids64);
    t->labels64 = malloc(n * sizeof *t->labels64);
    t->ids = malloc(n * sizeof *t->ids);
    t->labels = malloc(n * sizeof *t->labels);
    if (!t->ids64 || !t->labels64 || !t->ids || !t->labels)
        return clv_fail_memory(err, "a batch", n * sizeof *t->ids64);
    return CLV_OK;
}

static clv_status set_up(clv_trainer *t, const clv_mesh *mesh, clv_error *err)
{
    const clv_train_options *o = &t->options;
    if (o->batch < 1 || o->seq < 1 || o->seq > o->model.max_positions)
        return clv_fail(err, CLV_EINVAL, "batch %lld, sequence %lld; valid: batch >= 1, sequence 1 to %lld",
                        (long long)o->batch, (long long)o->seq, (long long)o->model.max_positions);
    CLV_TRY(clv_model_config_check(&o->model, "the model", err));
    CLV_TRY(clv_schedule_check(&o->schedule, err));
    CLV_TRY(make_buffers(t, err));
    CLV_TRY(compile(t, mesh, err));
    clv_session_options session = {.threads_per_rank = o->threads_per_rank, .seed = o->seed, .check = o->check};
    CLV_TRY(clv_session_new(&t->session, mesh, &session, err));
    return clv_session_load(t->session, t->program, err);
}

clv_status clv_trainer_new(clv_trainer **out, const clv_mesh *mesh, const clv_train_options *options,
                           const clv_text_data *data, clv_error *err)
{
    clv_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return clv_fail_memory(err, "a trainer", sizeof *t);
    t->options = *options;
    t->data = data;
    clv_status status = set_up(t, mesh, err);
    if (status != CLV_OK) {
        clv_trainer_free(t);
        return status;
    }
    *out = t;
    return CLV_OK;
}

void clv_trainer_free(clv_trainer *t)
{
    if (!t)
        return;
    clv_session_free(t->session);
    clv_program_free(t->program);
    free(t->ids64);
    free(t->labels64);
    free(t->ids);
    free(t->labels);
    free(t);
}

clv_status clv_trainer_step(clv_trainer *t, clv_train_step *result, clv_error *err)
{
    const clv_train_options *o = &t->options;
    clv_text_data_batch(t->data, o->seed, t->step, 0, o->batch, o->seq, t->ids64, t->labels64);
    for (int64_t i = 0; i < o->batch * o->seq; i++) {
        t->ids[i] = (int32_t)t->ids64[i];
        t->labels[i] = (int32_t)t->labels64[i];
    }
    float lr = (float)clv_schedule_rate(&o->schedule, t->step), loss = NAN;
    int32_t step = (int32_t)(t->step + 1);
    clv_binding inputs[] = {{"ids", t->ids}, {"labels", t->labels}, {"lr", &lr}, {"step", &step}};
    clv_binding outputs[] = {{"loss", &loss}};
    CLV_TRY(clv_session_run(t->session, t->program, inputs, 4, outputs, 1, err));
    clv_session_stats stats = clv_session_take_stats(t->session);
    *result = (clv_train_step){
        .step = t->step, .loss = loss, .lr = lr, .seconds = stats.seconds, .comm_seconds = stats.comm_seconds};
    if (!isfinite(loss))
        return clv_fail(err, CLV_EINVAL, "the loss is not a number at step %lld; try a lower learning rate",
                        (long long)t->step);
    t->step++;
    return CLV_OK;
}

const clv_program *clv_trainer_program(const clv_trainer *t)
{
    return t->program;
}

int64_t clv_trainer_parameters(const clv_trainer *t)
{
    int64_t elems = 0;
    for (int64_t i = 0; i < clv_model_parameter_count(&t->options.model); i++) {
        clv_parameter parameter = clv_model_parameter_at(&t->options.model, i);
        elems += clv_parameter_elems(&parameter);
    }
    return elems;
}

clv_status clv_trainer_save(const clv_trainer *t, const char *folder, clv_error *err)
{
    CLV_TRY(clv_model_write_folder(t->session, &t->options.model, folder, err));
    return clv_tokenizer_write_bytes(folder, err);
}
