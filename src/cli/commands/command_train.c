/* command_train.c - the `cleave train` command: parses its options, opens or creates the model, starts the training
 * loop.
 */
#include <stdio.h>

#include "cleave/plan_estimate.h"
#include "cli/job/job_processes.h"
#include "cli/options/output_options.h"
#include "cli/output/messages.h"
#include "cli/train/training_loop.h"

/* Errors name options; those of the model would name its fields. */
static clv_status check_heads(const clv_model_info *sizes, clv_error *err)
{
    long long hidden = sizes->hidden, heads = sizes->heads, less = hidden / (2 * heads) * 2 * heads;
    char valid[64];
    if (less > 0)
        snprintf(valid, sizeof valid, "--hidden %lld or %lld", less, less + 2 * heads);
    else
        snprintf(valid, sizeof valid, "--hidden %lld", 2 * heads);
    if (hidden % heads != 0)
        return clv_fail(err, CLV_EINVAL, "--hidden %lld is not a multiple of --heads %lld; valid: %s", hidden, heads,
                        valid);
    if (hidden / heads % 2 != 0)
        return clv_fail(err, CLV_EINVAL,
                        "--hidden %lld / --heads %lld is a head width of %lld, which is odd; rotary embedding needs an "
                        "even one; valid: %s",
                        hidden, heads, hidden / heads, valid);
    if (sizes->kv_heads > 0 && heads % sizes->kv_heads != 0)
        return clv_fail(err, CLV_EINVAL, "--kv-heads %lld does not divide --heads %lld", (long long)sizes->kv_heads,
                        heads);
    return CLV_OK;
}

/* A new model of --hidden, --layers, ...; the token between documents ends a text. */
static clv_status new_model(clv_model **out, const clv_train_args *a, const clv_train_data *data, clv_error *err)
{
    clv_model_info sizes = a->sizes;
    CLV_TRY(check_heads(&sizes, err));
    sizes.size = sizeof sizes;
    sizes.ffn = sizes.ffn ? sizes.ffn : (sizes.hidden * 8 / 3 + 31) / 32 * 32;
    sizes.vocab = data->vocab;
    sizes.max_positions = data->seq > 2048 ? data->seq : 2048;
    sizes.bos = sizes.pad = sizes.mask = -1;
    sizes.eos[0] = data->eos_id;
    sizes.n_eos = data->eos_id >= 0;
    return clv_model_new(out, &sizes, &a->model.options, err);
}

static clv_status read_lora(clv_train_args *a, clv_error *err)
{
    const clv_lora_options **lora = &a->model.options.lora;
    CLV_TRY(clv_lora_options_resolve(lora, &a->lora, err));
    if (a->adapters) {
        a->lora = (clv_lora_options){.size = sizeof a->lora, .folder = a->adapters};
        *lora = &a->lora;
    }
    if (*lora && !a->folder)
        return clv_fail(err, CLV_EINVAL, "%s needs the weights of a model; valid: with -m DIR",
                        a->adapters ? "--lora" : "--lora-rank");
    return CLV_OK;
}

static clv_status check_lora_save(const clv_train_args *a, const clv_model *model, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    if (!a->lora_save)
        return CLV_OK;
    if (model)
        CLV_TRY(clv_model_get_info(model, &info, err));
    return info.adapter_rank > 0 ? CLV_OK
                                 : clv_fail(err, CLV_EINVAL, "--lora-save has no effect without --lora-rank or --lora");
}

/* A named file that is missing or of another format is a usage error. */
static clv_status as_usage_error(clv_status status, clv_error *err)
{
    if (status == CLV_ENOTFOUND || status == CLV_EFORMAT)
        err->code = CLV_EINVAL;
    return status == CLV_OK ? CLV_OK : err->code;
}

/* The model of -m or --config; *model stays NULL without them. */
static clv_status open_model(clv_model **model, clv_train_args *a, clv_error *err)
{
    const char *path = a->folder ? a->folder : a->config;
    a->model.options.config_only = a->config != NULL;
    if (path)
        CLV_TRY(as_usage_error(clv_model_open_alike(model, path, &a->model.options, err), err));
    return check_lora_save(a, *model, err);
}

static clv_status open_data(clv_train_data *data, clv_train_args *a, const clv_model *model, const char *command,
                            clv_error *err)
{
    CLV_TRY(as_usage_error(
        clv_train_data_open(data, &a->data, model, a->folder != NULL, a->trainer.seq, a->trainer.seed, err), err));
    if (data->skipped > 0)
        clv_log("%s: note: %lld malformed JSON line%s skipped", command, (long long)data->skipped,
                data->skipped == 1 ? " was" : "s were");
    a->trainer.seq = data->seq;
    return CLV_OK;
}

static clv_status train(clv_invocation *run, clv_train_args *a, clv_error *err)
{
    clv_train_data data = {0};
    clv_model *model = NULL;
    clv_status status = open_model(&model, a, err);
    if (status == CLV_OK)
        status = open_data(&data, a, model, run->name, err);
    if (status == CLV_OK && !model)
        status = new_model(&model, a, &data, err);
    if (status == CLV_OK)
        status = clv_train_run(run, a, model, &data, err);
    clv_model_close(model);
    clv_train_data_close(&data);
    return status;
}

static clv_status check_options(clv_train_args *a, clv_error *err)
{
    CLV_TRY(clv_optimizer_option_apply(&a->trainer, &a->optimizer, a->steps, err));
    CLV_TRY(clv_traced_steps_resolve(&a->trace, a->steps, err));
    CLV_TRY(read_lora(a, err));
    a->trainer.size = sizeof a->trainer;
    a->trainer.on_nan = a->on_nan;
    if (a->trainer.batch % a->optimizer.update.accumulate != 0)
        return clv_fail(err, CLV_EINVAL, "--accumulate %lld does not divide --batch %lld",
                        (long long)a->optimizer.update.accumulate, (long long)a->trainer.batch);
    return CLV_OK;
}

/* Ranks and threads by the heads of the model. */
static void choose_parallelism(clv_train_args *a)
{
    const clv_model_info *s = &a->sizes;
    if (a->folder || a->config)
        clv_auto_parallelism_for_model(&a->model, a->folder ? a->folder : a->config);
    else
        a->model.chosen =
            clv_auto_parallelism_fill(&a->model.mesh, &a->model.threads, s->kv_heads ? s->kv_heads : s->heads);
}

/* What --rules auto finds rules for: the step of the model that is read, or a block of one that is new. */
static void set_workload(clv_train_args *a)
{
    const clv_model_info *s = &a->sizes;
    const char *path = a->folder ? a->folder : a->config;
    clv_plan_options *w = &a->model.workload;
    *w = (clv_plan_options){.model = path,
                            .batch = a->trainer.batch,
                            .seq = a->trainer.seq ? a->trainer.seq : CLV_TRAIN_DATA_SEQ,
                            .dropout = path ? a->trainer.dropout : 0,
                            .attention_dropout = path ? a->trainer.attention_dropout : 0,
                            .accumulate = path ? a->optimizer.update.accumulate : 0,
                            .no_sync = path && a->optimizer.update.no_sync};
    if (path)
        return;
    w->block = CLV_PLAN_BLOCK_LLAMA;
    w->mode = CLV_PLAN_MODE_GRAD;
    w->hidden = s->hidden;
    w->heads = s->heads;
    w->kv_heads = s->kv_heads;
    w->ffn = s->ffn;
}

clv_status command_train(clv_invocation *run, clv_error *err)
{
    clv_train_args a = {.sizes = {.layers = 4, .hidden = 256, .heads = 8},
                        .trainer = {.batch = 8, .seed = 1},
                        .steps = 200,
                        .keep_last = 2,
                        .optimizer = CLV_OPTIMIZER_DEFAULTS};
    const clv_option options[] = {
        CLV_DATA_OPTIONS(&a.data),
        CLV_MODEL_ROW(&a.folder, "DIR", NO, "continue from the weights of this Hugging Face folder",
                      .conflicts_with = "--config, --layers, --hidden, --heads, --kv-heads, --ffn"),
        CLV_OPT_INPUT("--config", &a.config, "FILE", "a new model of this config.json, initialized by --seed",
                      .conflicts_with = "--layers, --hidden, --heads, --kv-heads, --ffn"),
        CLV_LORA_OPTIONS(&a.lora, "--lora"),
        CLV_OPT_INPUT("--lora", &a.adapters, "DIR", "continue from the adapters of this PEFT folder",
                      .missing_hint = clv_model_missing_hint),
        CLV_OPT_CHOICE("--lora-save", &a.lora_save, "merged|adapter",
                       "save the model with its adapters merged, or the adapters alone as PEFT does (merged)",
                       .advanced = true),
        CLV_OUT_OPTION(
            &a.out, "DIR", FOLDER,
            "output folder: the model in Hugging Face's format, metrics.jsonl and checkpoints; a new folder, "
            "or that of a run that was stopped",
            .required = true),
        CLV_OPT_INT("--save-every", &a.save_every, 0, 1 << 30, "N",
                    "steps between checkpoints in DIR/checkpoints; 0: only when a signal ends the run (0)"),
        CLV_OPT_FLAG("--save-wait", &a.save_wait,
                     "wait while a checkpoint is written; else training goes on, and a copy of the state takes memory "
                     "(checkpoint_copy of plan)",
                     .advanced = true),
        CLV_OPT_INT("--keep-last", &a.keep_last, 1, 1 << 30, "N", "newest checkpoints to keep (2)", .advanced = true),
        CLV_OPT_INT("--keep-every", &a.keep_every, 0, 1 << 30, "N",
                    "also keep the checkpoints of every N-th step; 0: none (0)", .advanced = true),
        CLV_OPT_FLAG("--resume", &a.resume, "continue from the newest checkpoint of --out; without one, start"),
        CLV_MESH_OPTIONS(&a.model.mesh),
        CLV_RULES_OPTIONS(&a.model.mesh),
        CLV_LAYERS_OPTION(&a.sizes.layers, 1, 10000, "N", "transformer blocks (4)"),
        CLV_HIDDEN_OPTION(&a.sizes.hidden, 1, 1 << 20, "N", "model width (256)"),
        CLV_HEADS_OPTION(&a.sizes.heads, 1, 1 << 16, "N", "query heads (8)"),
        CLV_KV_HEADS_OPTION(&a.sizes.kv_heads, 0, 1 << 16, "N", "key and value heads; 0: as many as query heads (0)"),
        CLV_FFN_OPTION(&a.sizes.ffn, 0, 1 << 22, "N",
                       "feed-forward width; 0: 8/3 of the model width, rounded up to 32 (0)"),
        CLV_SEQ_OPTION(&a.trainer.seq, 1, 1 << 20, "N", "tokens a sequence (that of the rows of --data, else 256)"),
        CLV_BATCH_OPTION(&a.trainer.batch, 1, 1 << 20, "N", "sequences a step (8)"),
        CLV_ACCUMULATE_OPTIONS(&a.optimizer.update.accumulate, &a.optimizer.update.no_sync, &a.model.mesh.given),
        CLV_PIPELINE_SCHEDULE_OPTION(&a.model.options.compile),
        CLV_STAGES_OPTION(&a.model.mesh),
        CLV_VIRTUAL_STAGES_OPTION(&a.model.mesh.virtual_stages),
        CLV_EXPERT_RANK_CAPACITY_OPTION(&a.model.options.compile),
        CLV_OPT_INT("--steps, --train-iters", &a.steps, 1, 1 << 30, "N", "training steps (200)"),
        CLV_OPTIMIZER_OPTIONS(&a.optimizer),
        CLV_OPT_ENUM("--on-nan", &a.on_nan, "stop|skip", NULL,
                     "when loss or gradients are not finite: save and stop, or skip the step (stop)", .advanced = true),
        CLV_DROPOUT_OPTIONS(&a.trainer.dropout, &a.trainer.attention_dropout),
        CLV_SEED_OPTION(&a.trainer.seed, NULL, "seed of weights and data order (1)"),
        CLV_RUN_OPTIONS(&a.model),
        CLV_DTYPE_ROW(&a.model.options.dtype, "f32|bf16",
                      "of weights, activations and gradients; with bf16 the optimizer keeps f32 copies (f32)"),
        CLV_COMM_DTYPE_OPTION(&a.model.options.compile),
        CLV_GRAD_REDUCE_DTYPE_OPTION(&a.model.grad_reduce_dtype),
        CLV_RECOMPUTE_OPTIONS(&a.model.options.compile, &a.model.mesh.given),
        CLV_COST_MODEL_OPTION(&a.model.hardware),
        CLV_TRACED_STEPS_OPTIONS(&a.trace),
        CLV_OPT_STRING("--plot", &a.plot, "FILE", "plot loss and tokens/s as SVG: at every checkpoint, and at the end",
                       .suffix = ".svg", .use = CLV_OPTION_OUTPUT_FILE),
        CLV_FORMAT_OPTIONS(&run->format, "", "print the summary as JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    a.options = options;
    a.n_options = sizeof options / sizeof options[0];
    clv_mesh_option_apply_rules_file(&a.model.mesh, &a.model.options.compile, &a.optimizer.update.accumulate,
                                     &a.optimizer.update.no_sync);
    CLV_TRY(check_options(&a, err));
    choose_parallelism(&a);
    set_workload(&a);
    clv_status status = clv_model_option_resolve(&a.model, err);
    if (status == CLV_OK)
        status = train(run, &a, err);
    clv_machine_free(a.model.machine);
    return status;
}
