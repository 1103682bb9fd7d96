/* model_options.c - options of commands that run a model (model folder, mesh, dtype, quantization), and opening that
 * model.
 */
#include "cli/options/model_options.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/output/messages.h"

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
    (void)signal;
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

clv_status clv_grad_reduce_option_read(clv_comm_dtype *carried, bool *f32, const char *grad_reduce,
                                       const char *comm_dtype, clv_error *err)
{
    clv_comm_dtype found = CLV_COMM_F32;
    if (grad_reduce)
        CLV_TRY(clv_comm_dtype_parse(&found, grad_reduce, err));
    *f32 = grad_reduce && found == CLV_COMM_F32;
    if (*f32 && strcmp(comm_dtype, "f32") != 0)
        return clv_fail(err, CLV_EINVAL,
                        "--grad-reduce-dtype f32 beside --comm-dtype %s; valid: bf16, or --comm-dtype f32", comm_dtype);
    *carried = found;
    return CLV_OK;
}

clv_status clv_quant_option_read(clv_quant *out, const char *quant, clv_error *err)
{
    clv_quant found = CLV_QUANT_NONE;
    if (quant)
        CLV_TRY(clv_quant_parse(&found, quant, err));
    *out = found;
    return CLV_OK;
}

/* 1, which divides nothing, where it cannot be read: opening the model says why. */
static int64_t kv_heads_of(const char *path)
{
    clv_model *model;
    clv_model_info info = {.size = sizeof info};
    clv_model_options options = {.size = sizeof options, .config_only = 1};
    if (clv_model_open(&model, path, &options, NULL) != CLV_OK)
        return 1;
    clv_status status = clv_model_get_info(model, &info, NULL);
    clv_model_close(model);
    return status == CLV_OK ? info.kv_heads : 1;
}

clv_auto_parallelism clv_auto_parallelism_for_model(clv_mesh_option *option, int64_t *threads, const char *path)
{
    int64_t heads = clv_auto_parallelism_applies(option, *threads) ? kv_heads_of(path) : 1;
    return clv_auto_parallelism_fill(option, threads, heads);
}

clv_status clv_model_option_open(clv_model **out, clv_model_option *o, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_machine *machine;
    clv_model_options options = {.size = sizeof options, .mesh = &mesh, .rules = &rules, .map = 1};
    o->whole = clv_auto_parallelism_for_model(&o->mesh, &o->run.threads, o->path);
    CLV_TRY(clv_mesh_option_read(&mesh, &o->mesh, err));
    CLV_TRY(clv_mesh_option_rules(&rules, &o->mesh, &mesh, err));
    CLV_TRY(clv_dtype_parse(&options.dtype, o->dtype, err));
    CLV_TRY(clv_comm_dtype_parse(&options.compile.comm_dtype, o->comm_dtype, err));
    CLV_TRY(clv_quant_option_read(&options.quant, o->quant, err));
    if (!o->run.every_process_runs_all)
        CLV_TRY(clv_processes_job_of_mesh(&options.job, &o->run.comm, &mesh, err));
    CLV_TRY(clv_flight_option_open(&options.flight, o->run.comm.flight, err));
    options.threads_per_rank = (int)o->run.threads;
    options.check = o->run.check;
    options.compile.overlap = o->run.overlap;
    options.timeout_ms = clv_comm_option_timeout_ms(&o->run.comm);
    options.cancel = o->cancel;
    CLV_TRY(clv_hardware_option_open(&machine, o->hardware, err));
    options.compile.machine = machine;
    handle_lost_pages();
    clv_status status = clv_model_open(out, o->path, &options, err);
    clv_machine_free(machine);
    if (status != CLV_OK)
        return status;
    status = clv_model_verify_across_processes(*out, err);
    if (status != CLV_OK) {
        clv_model_close(*out);
        *out = NULL;
    }
    return status;
}

void clv_model_option_warnings(const clv_model *model, const clv_model_option *o, const char *command)
{
    clv_auto_parallelism_print(o->whole, command);
    clv_mesh_option_warn_oversubscribed(clv_model_mesh(model), command);
    for (int i = 0; clv_model_warning(model, i); i++)
        clv_log("%s: note: %s: %s", command, o->path, clv_model_warning(model, i));
}
