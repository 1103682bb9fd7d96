/* model_options.c - options of commands that run a model (model folder, mesh, dtype, quantization), and opening that
 * model.
 */
#include "cli/options/model_options.h"

#include <signal.h>
#include <unistd.h>

#include "cli/command.h"

/* Whether it is written as names of the Hub are, NAME or WHO/NAME, and no folder WHO is here. */
static bool is_hub_name(const char *value)
{
    static const char valid[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t who = strspn(value, valid), name = value[who] == '/' ? strspn(value + who + 1, valid) : 0;
    char folder[256];

    if (who == 0 || value[0] == '.' || value[who + (name > 0 ? name + 1 : 0)] != '\0')
        return false;
    snprintf(folder, sizeof folder, "%.*s", (int)who, value);
    return name == 0 || access(folder, F_OK) != 0;
}

void clv_model_missing_hint(char *out, size_t size, const char *value)
{
    const char *name = strrchr(value, '/');

    if (is_hub_name(value))
        snprintf(out, size, "; a model of the Hub is fetched first, into a folder: hf download %s --local-dir %s",
                 value, name != NULL ? name + 1 : value);
}

/* In a read of weights this becomes that read's failure; elsewhere nothing can go on. */
static void on_lost_page(int signal)
{
    static const char message[] = "cleave: a page of memory or of a mapped file is gone (SIGBUS)\n";
    clv_handle_sigbus();
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(CLV_EXIT_FAILED);
}

static void handle_lost_pages(void)
{
    struct sigaction action = {.sa_handler = on_lost_page, .sa_flags = SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

clv_status clv_grad_reduce_dtype_apply(clv_compile_options *compile, bool *f32_gradients, const char *word,
                                       clv_error *err)
{
    *f32_gradients = word && strcmp(word, "f32") == 0;
    if (*f32_gradients && compile->comm_dtype != CLV_COMM_F32)
        return clv_fail(err, CLV_EINVAL,
                        "--grad-reduce-dtype f32 cannot be combined with --comm-dtype %s; valid: bf16, or --comm-dtype "
                        "f32",
                        clv_comm_dtype_name(compile->comm_dtype));
    return word ? clv_comm_dtype_parse(&compile->grad_reduce_dtype, word, err) : CLV_OK;
}

clv_status clv_hardware_option_open(clv_machine **out, const char *profile, const char *software, clv_error *err)
{
    clv_error why = {0};
    *out = NULL;
    clv_status status = profile ? clv_machine_open(out, profile, software, &why) : CLV_OK;
    return clv_as_usage_error("--hardware", status, &why, err);
}

clv_status clv_lora_options_resolve(const clv_lora_options **out, clv_lora_options *lora, clv_error *err)
{
    const char *other = lora->targets        ? "--lora-targets"
                        : lora->alpha != 0   ? "--lora-alpha"
                        : lora->dropout != 0 ? "--lora-dropout"
                                             : NULL;
    lora->size = sizeof *lora;
    *out = lora->rank > 0 ? lora : NULL;
    if (lora->rank == 0 && other)
        return clv_fail(err, CLV_EINVAL, "%s has no effect without --lora-rank", other);
    return CLV_OK;
}

/* 1, which divides nothing, where it cannot be read: opening the model says why. */
static int64_t kv_heads_of(const char *path)
{
    clv_model *model;
    clv_model_info info = {.size = sizeof info};
    clv_model_options options = {.size = sizeof options, .config_only = true};
    if (clv_model_open(&model, path, &options, NULL) != CLV_OK)
        return 1;
    clv_status status = clv_model_get_info(model, &info, NULL);
    clv_model_close(model);
    return status == CLV_OK ? info.kv_heads : 1;
}

void clv_auto_parallelism_for_model(clv_model_option *o, const char *path)
{
    clv_mesh_option_read_rules_file(&o->mesh);
    int64_t heads = clv_auto_parallelism_applies(&o->mesh, o->threads) ? kv_heads_of(path) : 1;
    o->chosen = clv_auto_parallelism_fill(&o->mesh, &o->threads, heads);
}

/* At most the model's positions; as it is where the model cannot be read: opening it says why. */
static int64_t limit_seq(int64_t seq, const char *path)
{
    clv_model *model;
    clv_model_info info = {.size = sizeof info};
    clv_model_options options = {.size = sizeof options, .config_only = true};
    if (clv_model_open(&model, path, &options, NULL) != CLV_OK)
        return seq;
    clv_status status = clv_model_get_info(model, &info, NULL);
    clv_model_close(model);
    return status == CLV_OK && info.max_positions < seq ? info.max_positions : seq;
}

/* Where the command says what it runs. */
static void set_workload(clv_model_option *o)
{
    clv_plan_options *w = &o->workload;
    o->mesh.workload = NULL;
    if (w->batch == 0 || !clv_mesh_option_is_auto(&o->mesh))
        return;
    w->model = w->model || w->block ? w->model : o->path;
    w->size = sizeof *w;
    w->seq = w->model ? limit_seq(w->seq, w->model) : w->seq;
    w->dtype = o->options.dtype;
    w->quant = o->options.quant;
    w->lora = o->options.lora;
    w->f32_gradients = o->options.f32_gradients;
    w->compile = o->options.compile;
    o->mesh.workload = w;
}

clv_status clv_model_option_resolve(clv_model_option *o, clv_error *err)
{
    clv_model_options *to = &o->options;
    if (o->no_patterns)
        return clv_fail(err, CLV_EINVAL,
                        "--no-patterns has no effect on a model; it is for programs of StableHLO text");
    CLV_TRY(clv_grad_reduce_dtype_apply(&to->compile, &to->f32_gradients, o->grad_reduce_dtype, err));
    CLV_TRY(clv_hardware_option_open(&o->machine, o->hardware, NULL, err));
    to->compile.machine = o->machine;
    set_workload(o);
    CLV_TRY(clv_mesh_option_resolve(&o->mesh, err));
    if (!o->every_process_runs_all)
        CLV_TRY(clv_processes_job_of_mesh(&to->job, &o->comm, &o->mesh.mesh, err));
    CLV_TRY(clv_flight_option_open(&to->flight, o->comm.flight, err));
    to->size = sizeof *to;
    to->mesh = &o->mesh.mesh;
    to->rules = &o->mesh.axis_rules;
    to->threads_per_rank = (int)o->threads;
    to->timeout_ms = clv_comm_option_timeout_ms(&o->comm);
    return CLV_OK;
}

clv_status clv_model_open_alike(clv_model **out, const char *path, const clv_model_options *options, clv_error *err)
{
    CLV_TRY(clv_model_open(out, path, options, err));
    clv_status status = clv_model_verify_across_processes(*out, err);
    if (status != CLV_OK) {
        clv_model_close(*out);
        *out = NULL;
    }
    return status;
}

clv_status clv_model_option_open(clv_model **out, clv_model_option *o, clv_error *err)
{
    clv_auto_parallelism_for_model(o, o->path);
    CLV_TRY(clv_model_option_resolve(o, err));
    o->options.map = true;
    handle_lost_pages();
    clv_status status = clv_model_open_alike(out, o->path, &o->options, err);
    clv_machine_free(o->machine);
    return status;
}

void clv_model_option_print_chosen(const clv_model_option *o, const char *command)
{
    clv_auto_parallelism_print(o->chosen, command);
    if (o->mesh.found.priced > 0)
        clv_log("%s: rules found: %s", command, o->mesh.found.like);
}

void clv_model_option_warnings(const clv_model *model, const clv_model_option *o, const char *command)
{
    clv_model_option_print_chosen(o, command);
    clv_mesh_option_warn_oversubscribed(clv_model_mesh(model), command);
    for (int i = 0; clv_model_warning(model, i); i++)
        clv_log("%s: note: %s: %s", command, o->path, clv_model_warning(model, i));
}
