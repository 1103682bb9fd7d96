/* trainer.c - clv_trainer: builds and compiles the training step, runs steps, saves the model. */
#include <math.h>

#include "base/text/utf8.h"
#include "cleave/checkpoint.h"
#include "program/program.h"
#include "runtime/multi_process/multi_process.h"
#include "train/trainer.h"

typedef struct compilation {
    clv_trainer *trainer;
    const clv_update_options *update;
} compilation;

static clv_status compile_by_rules(clv_stage_needs *needs, void *arg, const clv_axis_rules *rules,
                                   clv_plan_schedule schedule, clv_error *err)
{
    const compilation *c = arg;
    clv_trainer *t = c->trainer;
    clv_graph *graph;
    t->own.rules = *rules;
    t->own.compile.schedule = schedule;
    clv_program_free(t->program);
    t->program = NULL;
    CLV_TRY(clv_graph_new(&graph, &t->model->mesh, err));
    clv_model_graph_options shape = clv_trainer_graph_options(t);
    shape.dropout = t->dropout;
    shape.attention_dropout = t->attention_dropout;
    shape.dropout_seed = t->seed;
    clv_model_train_step(graph, t->model, &shape, c->update);
    clv_status status = clv_model_compile(&t->program, t->model, graph, err);
    clv_graph_free(graph);
    return status == CLV_OK ? clv_stage_needs_read(needs, t->program, t->model->compile.machine, err) : status;
}

static clv_status compile(clv_trainer *t, const clv_trainer_options *o, clv_error *err)
{
    clv_update_options update;
    clv_axis_rules rules;
    CLV_TRY(clv_options_copy_in(&update, sizeof update, sizeof update, o->update, "clv_trainer_new", err));
    if (!update.adamw)
        update.adamw = o->adamw;
    t->optimizer = update.optimizer;
    compilation c = {t, &update};
    CLV_TRY(clv_model_fit_stages(&rules, t->model, compile_by_rules, &c, err));
    return clv_program_check_expert_capacity(t->program, t->model->compile.expert_rank_capacity_factor, err);
}

clv_model_graph_options clv_trainer_graph_options(const clv_trainer *t)
{
    return (clv_model_graph_options){.size = sizeof(clv_model_graph_options),
                                     .batch = t->batch,
                                     .seq = t->seq,
                                     .padding_mask = t->all_tokens != NULL};
}

static clv_status make_mask(clv_trainer *t, clv_error *err)
{
    size_t n = (size_t)t->batch * (size_t)t->seq;
    t->all_tokens = malloc(n);
    if (!t->all_tokens)
        return clv_fail_memory(err, "a mask", n);
    memset(t->all_tokens, 1, n);
    return CLV_OK;
}

static clv_status init_trainer(clv_trainer *t, const clv_trainer_options *o, clv_error *err)
{
    int64_t most = t->model->config.max_positions;
    if (o->batch < 1 || o->seq < 1 || o->seq > most)
        return clv_fail(err, CLV_EINVAL, "batch %lld, sequence %lld; valid: batch >= 1, sequence 1 to %lld",
                        (long long)o->batch, (long long)o->seq, (long long)most);
    CLV_TRY(clv_lr_schedule_check(o->schedule, err));
    t->batch = o->batch;
    t->seq = o->seq;
    t->schedule = *o->schedule;
    t->seed = o->seed;
    t->dropout = o->dropout;
    t->attention_dropout = o->attention_dropout;
    if (o->on_nan != CLV_ON_NAN_STOP && o->on_nan != CLV_ON_NAN_SKIP)
        return clv_fail(err, CLV_EINVAL, "on_nan is %d; valid: those of clv_on_nan", (int)o->on_nan);
    t->on_nan = o->on_nan;
    if (o->padding_mask)
        CLV_TRY(make_mask(t, err));
    CLV_TRY(compile(t, o, err));
    clv_session_options session = clv_model_session_options(t->model);
    session.seed = o->seed;
    CLV_TRY(clv_session_new(&t->session, &t->model->mesh, &session, err));
    return clv_session_load(t->session, t->program, err);
}

clv_status clv_trainer_new(clv_trainer **out, const clv_model *model, const clv_trainer_options *options,
                           clv_error *err)
{
    clv_trainer_options o;
    CLV_TRY(clv_require(out && model && options, __func__, "out, a model and options", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    clv_trainer *t = calloc(1, sizeof *t);
    if (!t)
        return clv_fail_memory(err, "a trainer", sizeof *t);
    t->own = *model;
    t->model = &t->own;
    t->metadata = json_object();
    clv_status status = t->metadata ? init_trainer(t, &o, err) : clv_fail_memory(err, "a trainer", sizeof *t);
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
    clv_trainer_abandon_checkpoint(t);
    clv_session_free(t->session);
    clv_program_free(t->program);
    clv_program_free(t->eval_program);
    json_decref(t->metadata);
    free(t->all_tokens);
    free(t);
}

static clv_status check_mask(const clv_trainer *t, const uint8_t *mask, clv_error *err)
{
    if (!mask)
        return CLV_OK;
    if (!t->all_tokens)
        return clv_fail(err, CLV_EINVAL, "a mask needs the trainer option padding_mask");
    for (int64_t r = 0; r < t->batch; r++)
        if (!memchr(mask + r * t->seq, 1, (size_t)t->seq))
            return clv_fail(err, CLV_EINVAL, "sequence %lld is all padding; valid: at least one token", (long long)r);
    return CLV_OK;
}

clv_status clv_trainer_bind_inputs(clv_input_binding out[CLV_TRAINER_INPUTS], int *n, int64_t *counted,
                                   const clv_trainer *t, const int32_t *ids, const int32_t *labels, const uint8_t *mask,
                                   clv_error *err)
{
    CLV_TRY(clv_model_config_check_ids(&t->model->config, ids, t->batch, t->seq, err));
    CLV_TRY(clv_model_config_check_labels(&t->model->config, labels, t->batch, t->seq, counted, err));
    CLV_TRY(check_mask(t, mask, err));
    out[0] = (clv_input_binding){"ids", ids};
    out[1] = (clv_input_binding){"labels", labels};
    out[2] = (clv_input_binding){"mask", mask ? mask : t->all_tokens};
    *n = t->all_tokens ? CLV_TRAINER_INPUTS : CLV_TRAINER_INPUTS - 1;
    return CLV_OK;
}

static clv_status copy_step_result(clv_train_step *out, const clv_train_step *result, clv_error *err)
{
    return out ? clv_struct_copy_out(out, sizeof *result, sizeof *result, result, "clv_trainer_step", err) : CLV_OK;
}

clv_status clv_trainer_step(clv_trainer *t, const int32_t *ids, const int32_t *labels, const uint8_t *mask,
                            clv_train_step *out, clv_error *err)
{
    CLV_TRY(clv_require(t && ids && labels, __func__, "a trainer, ids and labels", err));
    clv_input_binding inputs[CLV_TRAINER_INPUTS + 2];
    int n;
    int64_t counted;
    CLV_TRY(clv_trainer_bind_inputs(inputs, &n, &counted, t, ids, labels, mask, err));
    float lr = (float)clv_lr_schedule_rate(&t->schedule, t->step), loss = NAN, norm = NAN;
    int32_t step = (int32_t)(t->step - t->skipped + 1);
    t->nonfinite[0] = '\0';
    if (counted == 0)
        return copy_step_result(out, &(clv_train_step){.step = t->step++, .lr = lr}, err);
    inputs[n++] = (clv_input_binding){"lr", &lr};
    inputs[n++] = (clv_input_binding){"step", &step};
    double dropped = 0;
    clv_output_binding outputs[] = {{"loss", &loss}, {"grad_norm", &norm}, {"dropped", &dropped}};
    const int n_outputs = t->model->config.capacity_factor > 0 ? 3 : 2;
    CLV_TRY(clv_session_run(t->session, t->program, inputs, n, outputs, n_outputs, err));
    clv_session_stats stats = {.size = sizeof stats};
    CLV_TRY(clv_session_take_stats(t->session, &stats, err));
    clv_train_step result = {.step = t->step,
                             .loss = loss,
                             .lr = lr,
                             .seconds = stats.seconds,
                             .comm_seconds = stats.comm_seconds,
                             .overlapped_seconds = stats.overlapped_seconds,
                             .grad_norm = norm,
                             .labels = counted,
                             .dropped = (int64_t)dropped};
    if (!isfinite(loss) || !isfinite(norm))
        CLV_TRY(clv_trainer_handle_nonfinite(t, &result, inputs, n, err));
    else
        t->step++;
    return copy_step_result(out, &result, err);
}

const clv_program *clv_trainer_program(const clv_trainer *t)
{
    return t ? t->program : NULL;
}

clv_session *clv_trainer_session(const clv_trainer *t)
{
    return t ? t->session : NULL;
}

clv_status clv_trainer_save(const clv_trainer *t, const char *folder, clv_error *err)
{
    CLV_TRY(clv_require(t && folder, __func__, "a trainer and a folder", err));
    return clv_model_save(t->model, t->session, folder, err);
}

clv_status clv_trainer_save_adapters(const clv_trainer *t, const char *folder, clv_error *err)
{
    CLV_TRY(clv_require(t && folder, __func__, "a trainer and a folder", err));
    return clv_model_save_adapters(t->model, t->session, folder, err);
}

int64_t clv_trainer_steps_done(const clv_trainer *t)
{
    return t ? t->step : -1;
}

/* ---- processes ---- */

clv_status clv_trainer_max_over_processes(const clv_trainer *t, int64_t mine, int64_t *max, clv_error *err)
{
    CLV_TRY(clv_require(t && max, __func__, "a trainer and max", err));
    int ranks = (int)clv_mesh_rank_count(&t->model->mesh);
    *max = mine;
    if (!clv_session_is_multi_process(t->session))
        return CLV_OK;
    CLV_FREED int64_t *all = calloc((size_t)ranks, sizeof *all);
    if (!all)
        return clv_fail_memory(err, "a number of each rank", (size_t)ranks * sizeof *all);
    CLV_TRY(clv_session_allgather(t->session, __func__, &mine, 1, all, err));
    for (int r = 0; r < ranks; r++)
        *max = all[r] > *max ? all[r] : *max;
    return CLV_OK;
}

/* ---- metadata ---- */

const char *clv_trainer_get_metadata(const clv_trainer *t, const char *key)
{
    return t && key ? json_string_value(json_object_get(t->metadata, key)) : NULL;
}

clv_status clv_trainer_set_metadata(clv_trainer *t, const char *key, const char *value, clv_error *err)
{
    CLV_TRY(clv_require(t && key && value, __func__, "a trainer, a key and a value", err));
    if (!clv_utf8_valid(key, strlen(key)) || !clv_utf8_valid(value, strlen(value)))
        return clv_fail(err, CLV_EINVAL, "%s: \"%.64s\" or its value is not UTF-8", __func__, key);
    if (json_object_set_new(t->metadata, key, json_string(value)) != 0)
        return clv_fail_memory(err, "metadata", strlen(value));
    return CLV_OK;
}
