/* train.c - cleave train: a byte-level Llama-form model on text files. */
#include <stdio.h>
#include <stdlib.h>

#include "cleave/text_data.h"
#include "cleave/train.h"
#include "cli/command.h"
#include "cli/hardware_option.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_option.h"
#include "cli/say.h"
#include "cli/size_option.h"
#include "cli/stops.h"
#include "cli/train_folder.h"

enum { VOCABULARY = 256 };

typedef struct train_args {
    clv_strings text;
    const char *out;
    clv_mesh_option mesh;
    clv_run_option run;
    const char *comm_dtype, *hardware;
    bool json;
    int64_t layers, hidden, heads, kv_heads, ffn, seq, batch, steps, warmup, seed;
    double lr, weight_decay;
} train_args;

static int parse(train_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "--text",
         .kind = CLV_OPTION_FILES,
         .out = &a->text,
         .value = "FILE...",
         .use = CLV_OPTION_READS,
         .required = true,
         .help = "text to learn, a byte a token; several files are joined"},
        CLV_OUT_OPTION(
            &a->out, "DIR", CLV_OPTION_MAKES, true,
            "folder for the checkpoint (Hugging Face form) and metrics.jsonl: a new one, or that of a run that "
            "was stopped"),
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        CLV_LAYERS_OPTION(&a->layers, 1, 10000, "N", "transformer blocks (4)"),
        CLV_HIDDEN_OPTION(&a->hidden, 1, 1 << 20, "N", "width (256)"),
        CLV_HEADS_OPTION(&a->heads, 1, 1 << 16, "N", "query heads (8)"),
        CLV_KV_HEADS_OPTION(&a->kv_heads, 0, 1 << 16, "N", "key and value heads; 0: as many as query heads"),
        CLV_FFN_OPTION(&a->ffn, 0, 1 << 22, "N", "feed-forward width; 0: 8/3 of the width, rounded up to 32"),
        CLV_SEQ_OPTION(&a->seq, 1, 1 << 20, "N", "bytes a sequence (256)"),
        CLV_BATCH_OPTION(&a->batch, 1, 1 << 20, "N", "sequences a step (8)"),
        {.names = "--steps, --train-iters",
         .kind = CLV_OPTION_INT,
         .out = &a->steps,
         .min = 1,
         .max = 1 << 30,
         .value = "N",
         .help = "steps (200)"},
        {.names = "--lr",
         .kind = CLV_OPTION_REAL,
         .out = &a->lr,
         .real_min = 1e-9,
         .real_max = 10,
         .value = "RATE",
         .help = "peak learning rate (0.003), cosine to a tenth after the warm-up"},
        {.names = "--warmup, --lr-warmup-iters",
         .kind = CLV_OPTION_INT,
         .out = &a->warmup,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "steps of linear warm-up (a twentieth of the steps)"},
        {.names = "--weight-decay",
         .kind = CLV_OPTION_REAL,
         .out = &a->weight_decay,
         .real_min = 0,
         .real_max = 1,
         .value = "W",
         .help = "decoupled weight decay of AdamW (0.1); norms are not decayed"},
        CLV_SEED_OPTION(&a->seed, NULL, "of weights and the order of data (1)"),
        CLV_RUN_OPTIONS(&a->run),
        CLV_COMM_DTYPE_OPTION(&a->comm_dtype, NULL),
        CLV_PRICES_OPTION(&a->hardware),
        CLV_JSON_OPTION_BESIDE(&a->json, NULL, "print the summary as JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* In terms of the options; a model's own check would speak of what comes of them. */
static clv_status check_heads(const train_args *a, clv_error *err)
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

/* The model that is trained: of bytes, which have no special tokens. */
static clv_model_info sizes_of(const train_args *a)
{
    int64_t ffn = a->ffn ? a->ffn : (a->hidden * 8 / 3 + 31) / 32 * 32;
    return (clv_model_info){.size = sizeof(clv_model_info),
                            .hidden = a->hidden,
                            .layers = a->layers,
                            .heads = a->heads,
                            .kv_heads = a->kv_heads,
                            .ffn = ffn,
                            .vocab = VOCABULARY,
                            .max_positions = a->seq > 2048 ? a->seq : 2048,
                            .bos = -1,
                            .pad = -1,
                            .mask = -1};
}

/* A run: what is trained, on what. */
typedef struct run {
    const train_args *args;
    const clv_model *model;
    const clv_text_data *data;
    clv_trainer *trainer;
    int32_t *ids, *labels; /* of a step */
} run;

/* What a run adds up to. */
typedef struct totals {
    double loss;      /* of the last step */
    double mean_loss; /* over steps, each weighing a tenth of what is left by those after it */
    int64_t timed;    /* steps during which the process was never stopped; the times are of these */
    double seconds, comm_seconds;
} totals;

/* Of a step that was interrupted (Ctrl-Z) the time is nobody's. */
static void log_step(clv_train_folder *folder, const clv_train_step *did, double tokens, bool timed)
{
    char line[256], rates[96] = "\"tokens_per_s\":null,\"comm_share\":null";
    if (timed)
        snprintf(rates, sizeof rates, "\"tokens_per_s\":%.1f,\"comm_share\":%.4f", tokens / did->seconds,
                 did->comm_seconds / did->seconds);
    snprintf(line, sizeof line, "{\"step\":%lld,\"loss\":%.6f,\"lr\":%.6g,%s}\n", (long long)did->step, did->loss,
             did->lr, rates);
    clv_train_folder_add(folder, line);
}

static void add_up(totals *total, const clv_train_step *did, bool timed)
{
    total->loss = did->loss;
    total->mean_loss = did->step == 0 ? did->loss : 0.9 * total->mean_loss + 0.1 * did->loss;
    if (!timed)
        return;
    total->timed++;
    total->seconds += did->seconds;
    total->comm_seconds += did->comm_seconds;
}

static clv_status step(const run *r, int64_t i, clv_train_step *result, clv_error *err)
{
    const train_args *a = r->args;
    CLV_TRY(clv_text_data_batch(r->data, (uint64_t)a->seed, i, 0, a->batch, a->seq, r->ids, r->labels, err));
    return clv_trainer_step(r->trainer, r->ids, r->labels, result, err);
}

static clv_status run_steps(const run *r, clv_train_folder *folder, const char *command, totals *total, clv_error *err)
{
    const train_args *a = r->args;
    clv_progress progress;
    double tokens = (double)(a->batch * a->seq);
    clv_progress_begin(&progress, "train", a->steps);
    for (int64_t i = 0; i < a->steps; i++) {
        clv_train_step did = {.size = sizeof did};
        char note[96];
        int stops = clv_stops();
        clv_status status = step(r, i, &did, err);
        bool timed = clv_stops() == stops;
        if (status != CLV_OK)
            return status;
        log_step(folder, &did, tokens, timed);
        add_up(total, &did, timed);
        double seconds = total->timed > 0 ? total->seconds : 1;
        snprintf(note, sizeof note, "mean loss %.3f, %.0f tokens/s, %.0f %% communication", total->mean_loss,
                 tokens * (double)total->timed / seconds, 100 * total->comm_seconds / seconds);
        clv_progress_update(&progress, i + 1, note);
    }
    clv_progress_end(&progress);
    if (total->timed < a->steps)
        clv_say("%s: note: the process was stopped during %lld step%s, whose time is left out of all figures", command,
                (long long)(a->steps - total->timed), a->steps - total->timed == 1 ? "" : "s");
    return CLV_OK;
}

static void print_start(const run *r, const clv_model_info *info)
{
    long long ranks = clv_mesh_ranks(clv_model_mesh(r->model));
    fprintf(stderr, "training %.2f M parameters on %lld bytes of text over %lld rank%s\n",
            1e-6 * (double)info->parameters, (long long)clv_text_data_size(r->data), ranks, ranks == 1 ? "" : "s");
}

/* A Hugging Face folder of the weights as they are, with the tokenizer of bytes. */
static clv_status save(const run *r, clv_error *err)
{
    CLV_TRY(clv_trainer_save(r->trainer, r->args->out, err));
    return clv_processes_is_first() ? clv_tokenizer_write_bytes(r->args->out, err) : CLV_OK;
}

/* The first process's, which the others then see. */
static clv_status open_folder(clv_train_folder *out, const char *path, int64_t bytes, const char *command,
                              clv_error *err)
{
    clv_status status = CLV_OK;
    *out = (clv_train_folder){.lock = -1, .room = -1};
    if (clv_processes_is_first())
        status = clv_train_folder_open(out, path, bytes, command, err);
    clv_status agreed = clv_processes_agree(status, err);
    if (agreed != CLV_OK && status == CLV_OK)
        clv_train_folder_close(out);
    return agreed;
}

static clv_status run_in_folder(const run *r, const char *command, totals *total, clv_error *err)
{
    clv_train_folder folder;
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_describe(r->model, &info, err));
    CLV_TRY(open_folder(&folder, r->args->out, info.parameters * (int64_t)sizeof(float), command, err));
    clv_mesh_option_note(clv_model_mesh(r->model), command);
    print_start(r, &info);
    clv_status status = run_steps(r, &folder, command, total, err);
    clv_train_folder_give_room(&folder);
    if (status == CLV_OK)
        status = save(r, err);
    if (status == CLV_OK && clv_processes_is_first())
        status = clv_train_folder_finish(&folder, err);
    clv_train_folder_close(&folder);
    return status;
}

static clv_status open_trainer(run *r, clv_error *err)
{
    const train_args *a = r->args;
    int64_t warmup = a->warmup >= 0 ? a->warmup : a->steps / 20;
    clv_schedule schedule = {.peak = a->lr, .floor = a->lr / 10, .warmup = warmup, .steps = a->steps};
    clv_adamw_options adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = a->weight_decay};
    clv_trainer_options options = {.size = sizeof options,
                                   .batch = a->batch,
                                   .seq = a->seq,
                                   .schedule = &schedule,
                                   .adamw = &adamw,
                                   .seed = (uint64_t)a->seed};
    size_t n = (size_t)(a->batch * a->seq);
    r->ids = malloc(n * sizeof *r->ids);
    r->labels = malloc(n * sizeof *r->labels);
    if (!r->ids || !r->labels)
        return clv_fail_memory(err, "a batch", n * sizeof *r->ids);
    return clv_trainer_new(&r->trainer, r->model, &options, err);
}

static int report(const run *r, const totals *total)
{
    const train_args *a = r->args;
    const clv_program *program = clv_trainer_program(r->trainer);
    clv_table *t = clv_report_collectives(program);
    clv_table_top(t);
    clv_table_real(t, "loss", total->loss);
    clv_table_real(t, "mean_loss", total->mean_loss);
    clv_table_seconds(t, "seconds", total->seconds);
    clv_table_real(t, "tokens_per_s", (double)(a->batch * a->seq * total->timed) / total->seconds);
    clv_table_real(t, "comm_share", total->comm_seconds / total->seconds);
    clv_table_bytes(t, "region_bytes_per_rank", (double)clv_program_region_bytes(program));
    clv_table_text(t, "checkpoint", a->out);
    return clv_table_finish(t, a->json);
}

static clv_status train_model(const train_args *a, const clv_model *model, const clv_text_data *data,
                              const char *command, int *code, clv_error *err)
{
    run r = {.args = a, .model = model, .data = data};
    totals total = {0};
    clv_status status = open_trainer(&r, err);
    if (status == CLV_OK)
        status = run_in_folder(&r, command, &total, err);
    if (status == CLV_OK)
        *code = report(&r, &total);
    clv_trainer_free(r.trainer);
    free(r.ids);
    free(r.labels);
    return status;
}

static clv_status train(const train_args *a, const char *command, int *code, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_text_data *data;
    clv_model *model = NULL;
    clv_machine *machine = NULL;
    clv_model_info sizes = sizes_of(a);
    clv_model_options options = {.size = sizeof options,
                                 .mesh = &mesh,
                                 .rules = &rules,
                                 .threads_per_rank = (int)a->run.threads,
                                 .check = a->run.check};
    CLV_TRY(clv_comm_dtype_parse(&options.comm_dtype, a->comm_dtype, err));
    CLV_TRY(clv_mesh_option_read(&mesh, &a->mesh, err));
    CLV_TRY(clv_processes_join(&options.job, a->run.comm, &mesh, err));
    CLV_TRY(clv_text_data_open(&data, a->text.item, a->text.n, a->seq, err));
    clv_status status = check_heads(a, err);
    if (status == CLV_OK)
        status = clv_mesh_option_rules(&rules, &a->mesh, &mesh, err);
    if (status == CLV_OK)
        status = clv_hardware_option_open(&machine, a->hardware, err);
    options.machine = machine;
    if (status == CLV_OK)
        status = clv_model_new(&model, &sizes, &options, err);
    if (status == CLV_OK)
        status = train_model(a, model, data, command, code, err);
    clv_model_close(model);
    clv_machine_free(machine);
    clv_text_data_close(data);
    return status;
}

int command_train(int argc, char **argv)
{
    train_args a = {.layers = 4,
                    .hidden = 256,
                    .heads = 8,
                    .seq = 256,
                    .batch = 8,
                    .steps = 200,
                    .warmup = -1,
                    .seed = 1,
                    .run = {.threads = 1},
                    .comm_dtype = "f32",
                    .lr = 3e-3,
                    .weight_decay = 0.1,
                    .mesh = {.tp = 1}};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    if (train(&a, argv[0], &code, &err) != CLV_OK)
        return clv_command_report(argv[0], &err);
    return code;
}
