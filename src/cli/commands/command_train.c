/* command_train.c - the `cleave train` command: parses its options, opens or creates the model, starts the training
 * loop.
 */
#include <stdio.h>

#include "cli/command.h"
#include "cli/job/job_processes.h"
#include "cli/options/hardware_option.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/options/size_options.h"
#include "cli/output/messages.h"
#include "cli/train/training_loop.h"

static int parse(clv_train_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_DATA_OPTIONS(&a->data),
        CLV_INITIAL_MODEL_OPTIONS(&a->start),
        CLV_LORA_OPTIONS(&a->lora, "--lora"),
        {.names = "--lora",
         .kind = CLV_OPTION_STRING,
         .out = &a->adapters,
         .value = "DIR",
         .use = CLV_OPTION_INPUT,
         .missing_hint = clv_model_missing_hint,
         .help = "go on from the adapters of this folder, in PEFT's form"},
        {.names = "--lora-save",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->lora_save,
         .value = "merged|adapter",
         .advanced = true,
         .help = "save a model whose weights have the adapters in them, or the adapters alone, as PEFT does (merged)"},
        CLV_OUT_OPTION(&a->out, "DIR", NULL, CLV_OPTION_OUTPUT_FOLDER, true,
                       "folder for what is trained (Hugging Face form), metrics.jsonl and checkpoints: a new one, or "
                       "that of a run that "
                       "was stopped"),
        {.names = "--save-every",
         .kind = CLV_OPTION_INT,
         .out = &a->save_every,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "steps from one checkpoint to go on from to the next, in DIR/checkpoints; 0: only when a signal ends "
                 "the run (0)"},
        {.names = "--save-wait",
         .kind = CLV_OPTION_FLAG,
         .out = &a->save_wait,
         .advanced = true,
         .help = "training waits while one is written; else it goes on, and a copy of what is saved takes memory "
                 "meanwhile (checkpoint_copy of plan)"},
        {.names = "--keep-last",
         .kind = CLV_OPTION_INT,
         .out = &a->keep_last,
         .min = 1,
         .max = 1 << 30,
         .value = "N",
         .advanced = true,
         .help = "how many of these stay (2)"},
        {.names = "--keep-every",
         .kind = CLV_OPTION_INT,
         .out = &a->keep_every,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .advanced = true,
         .help = "those of a multiple of N steps stay, too, for good; 0: no more (0)"},
        {.names = "--resume",
         .kind = CLV_OPTION_FLAG,
         .out = &a->resume,
         .help = "go on from the last checkpoint of --out; where there is none, begin"},
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        CLV_LAYERS_OPTION(&a->layers, 1, 10000, "N", "transformer blocks (4)"),
        CLV_HIDDEN_OPTION(&a->hidden, 1, 1 << 20, "N", "width (256)"),
        CLV_HEADS_OPTION(&a->heads, 1, 1 << 16, "N", "query heads (8)"),
        CLV_KV_HEADS_OPTION(&a->kv_heads, 0, 1 << 16, "N", "key and value heads; 0: as many as query heads"),
        CLV_FFN_OPTION(&a->ffn, 0, 1 << 22, "N", "feed-forward width; 0: 8/3 of the width, rounded up to 32"),
        CLV_SEQ_OPTION(&a->seq, 1, 1 << 20, "N", "tokens a sequence (those of the rows of --data, else 256)"),
        CLV_BATCH_OPTION(&a->batch, 1, 1 << 20, "N", "sequences a step (8)"),
        CLV_ACCUMULATE_OPTION(&a->optimizer.accumulate),
        {.names = "--steps, --train-iters",
         .kind = CLV_OPTION_INT,
         .out = &a->steps,
         .min = 1,
         .max = 1 << 30,
         .value = "N",
         .help = "steps (200)"},
        CLV_OPTIMIZER_OPTIONS(&a->optimizer),
        {.names = "--on-nan",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->on_nan,
         .value = "stop|skip",
         .advanced = true,
         .help = "at a step whose loss or gradients are not finite, which then changes nothing: save and leave, or go "
                 "on with the next (stop)"},
        CLV_DROPOUT_OPTION(&a->dropout),
        CLV_ATTENTION_DROPOUT_OPTION(&a->attention_dropout),
        CLV_SEED_OPTION(&a->seed, NULL, "of weights and the order of data (1)"),
        CLV_RUN_OPTIONS(&a->run),
        CLV_DTYPE_ROW(&a->dtype, "f32|bf16",
                      "of weights, activations and gradients (f32); of bf16 the optimizer keeps an f32 copy"),
        CLV_COMM_DTYPE_OPTION(&a->comm_dtype, NULL),
        CLV_GRAD_REDUCE_DTYPE_OPTION(&a->grad_reduce_dtype),
        CLV_RESHARD_AFTER_FORWARD_OPTION(&a->reshard_after_forward),
        CLV_RECOMPUTE_OPTIONS(&a->recompute),
        CLV_COST_MODEL_OPTION(&a->hardware),
        CLV_TRACED_STEPS_OPTIONS(&a->trace),
        {.names = "--plot",
         .kind = CLV_OPTION_STRING,
         .out = &a->plot,
         .suffix = ".svg",
         .use = CLV_OPTION_OUTPUT_FILE,
         .value = "FILE",
         .help = "draw losses and tokens a second over steps there, as SVG: at checkpoints, and when the run ends"},
        CLV_FORMAT_OPTIONS(&a->form, "", "print the summary as JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* In terms of the options; a model's own check would speak of what comes of them. */
static clv_status check_heads(const clv_train_args *a, clv_error *err)
{
    long long hidden = a->hidden, heads = a->heads, less = hidden / (2 * heads) * 2 * heads;
    char valid[64];
    if (less > 0)
        snprintf(valid, sizeof valid, "--hidden %lld or %lld", less, less + 2 * heads);
    else
        snprintf(valid, sizeof valid, "--hidden %lld", 2 * heads);
    if (a->hidden % a->heads != 0)
        return clv_fail(err, CLV_EINVAL, "--hidden %lld is not a multiple of --heads %lld; valid: %s", hidden, heads,
                        valid);
    if (hidden / heads % 2 != 0)
        return clv_fail(err, CLV_EINVAL,
                        "--hidden %lld over --heads %lld is %lld a head, and rotary embedding turns pairs; valid: %s",
                        hidden, heads, hidden / heads, valid);
    if (a->kv_heads > 0 && a->heads % a->kv_heads != 0)
        return clv_fail(err, CLV_EINVAL, "--kv-heads %lld does not divide --heads %lld", (long long)a->kv_heads, heads);
    return CLV_OK;
}

/* The model that is trained, of tokens among which at most one is special: what is behind a document. */
static clv_model_info sizes_of(const clv_train_args *a, const clv_train_data *data)
{
    int64_t ffn = a->ffn ? a->ffn : (a->hidden * 8 / 3 + 31) / 32 * 32;
    return (clv_model_info){.size = sizeof(clv_model_info),
                            .hidden = a->hidden,
                            .layers = a->layers,
                            .heads = a->heads,
                            .kv_heads = a->kv_heads,
                            .ffn = ffn,
                            .vocab = data->vocab,
                            .max_positions = a->seq > 2048 ? a->seq : 2048,
                            .bos = -1,
                            .pad = -1,
                            .mask = -1,
                            .eos = {data->end},
                            .n_eos = data->end >= 0};
}

/* Of the sizes, where no other model is named. */
static clv_status new_model(clv_model **out, const clv_train_args *a, const clv_train_data *data,
                            const clv_model_options *options, clv_error *err)
{
    CLV_TRY(check_heads(a, err));
    clv_model_info sizes = sizes_of(a, data);
    return clv_model_new(out, &sizes, options, err);
}

/* Adapters are of weights that are somewhere. */
static clv_status take_lora(const clv_lora_options **out, clv_lora_options *taken, const clv_train_args *a,
                            clv_error *err)
{
    CLV_TRY(clv_lora_option_read(out, taken, &a->lora, err));
    if (a->adapters) {
        *taken = (clv_lora_options){.size = sizeof *taken, .folder = a->adapters};
        *out = taken;
    }
    if (*out && !a->start.model)
        return clv_fail(err, CLV_EINVAL, "%s: adapters are trained beside the weights of a model; valid: with -m DIR",
                        a->adapters ? "--lora" : "--lora-rank");
    return CLV_OK;
}

/* Whether there is anything that --lora-save could be of. */
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

/* What was named and is not there, or is something else, is as wrong as an option is. */
static clv_status as_named(clv_status status, clv_error *err)
{
    if (status == CLV_ENOTFOUND || status == CLV_EFORMAT)
        err->code = CLV_EINVAL;
    return status == CLV_OK ? CLV_OK : err->code;
}

static clv_status train_on(clv_train_args *a, const clv_model_options *options, const char *command, int *code,
                           clv_error *err)
{
    clv_train_data data = {0};
    clv_model *model = NULL;
    clv_status status = as_named(clv_initial_model_open(&model, &a->start, options, err), err);
    if (status == CLV_OK)
        status = check_lora_save(a, model, err);
    if (status == CLV_OK)
        status = as_named(
            clv_train_data_open(&data, &a->data, model, a->start.model != NULL, a->seq, (uint64_t)a->seed, err), err);
    if (status == CLV_OK && data.skipped > 0)
        clv_log("%s: note: %lld line%s of JSON %s not as they ought to be, and passed over", command,
                (long long)data.skipped, data.skipped == 1 ? "" : "s", data.skipped == 1 ? "was" : "were");
    if (status == CLV_OK)
        a->seq = data.seq;
    if (status == CLV_OK && !model)
        status = new_model(&model, a, &data, options, err);
    if (status == CLV_OK)
        status = clv_train_run(a, model, options->compile.machine, &data, command, code, err);
    clv_model_close(model);
    clv_train_data_close(&data);
    return status;
}

static clv_status check_parts(const clv_train_args *a, clv_error *err)
{
    if (a->batch % a->optimizer.accumulate == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "--accumulate %lld does not divide --batch %lld",
                    (long long)a->optimizer.accumulate, (long long)a->batch);
}

/* By the heads of the model that is trained. */
static clv_auto_parallelism take_machine(clv_train_args *a)
{
    const char *path = a->start.model ? a->start.model : a->start.config;
    if (path)
        return clv_auto_parallelism_for_model(&a->mesh, &a->run.threads, path);
    return clv_auto_parallelism_fill(&a->mesh, &a->run.threads, a->kv_heads ? a->kv_heads : a->heads);
}

static clv_status train(clv_train_args *a, const char *command, int *code, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_machine *machine = NULL;
    clv_lora_options lora;
    a->whole = take_machine(a);
    clv_model_options options = {.size = sizeof options,
                                 .mesh = &mesh,
                                 .rules = &rules,
                                 .threads_per_rank = (int)a->run.threads,
                                 .check = a->run.check,
                                 .compile.overlap = a->run.overlap,
                                 .compile.reshard_after_forward = a->reshard_after_forward,
                                 .timeout_ms = clv_comm_option_timeout_ms(&a->run.comm)};
    CLV_TRY(take_lora(&options.lora, &lora, a, err));
    CLV_TRY(clv_dtype_parse(&options.dtype, a->dtype, err));
    CLV_TRY(check_parts(a, err));
    CLV_TRY(clv_comm_dtype_parse(&options.compile.comm_dtype, a->comm_dtype, err));
    CLV_TRY(clv_grad_reduce_option_read(&options.compile.grad_reduce_dtype, &options.f32_gradients,
                                        a->grad_reduce_dtype, a->comm_dtype, err));
    CLV_TRY(clv_recompute_option_read(&options.compile.recompute, &a->recompute, err));
    CLV_TRY(clv_mesh_option_read(&mesh, &a->mesh, err));
    CLV_TRY(clv_processes_job_of_mesh(&options.job, &a->run.comm, &mesh, err));
    CLV_TRY(clv_flight_option_open(&options.flight, a->run.comm.flight, err));
    CLV_TRY(clv_mesh_option_rules(&rules, &a->mesh, &mesh, err));
    CLV_TRY(clv_hardware_option_open(&machine, a->hardware, err));
    options.compile.machine = machine;
    clv_status status = train_on(a, &options, command, code, err);
    clv_machine_free(machine);
    return status;
}

int command_train(int argc, char **argv)
{
    clv_train_args a = {.layers = 4,
                        .hidden = 256,
                        .heads = 8,
                        .batch = 8,
                        .steps = 200,
                        .keep_last = 2,
                        .seed = 1,
                        .dtype = "f32",
                        .on_nan = "stop",
                        .comm_dtype = "f32",
                        .optimizer = CLV_OPTIMIZER_DEFAULTS};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    if (clv_optimizer_option_finalize(&a.optimizer, a.steps, &err) != CLV_OK ||
        clv_traced_steps_finalize(&a.trace, a.steps, &err) != CLV_OK || train(&a, argv[0], &code, &err) != CLV_OK)
        return clv_command_print_error(argv[0], &err);
    return code;
}
