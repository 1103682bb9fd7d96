/* training_loop.c - the training loop: steps, validation, metrics, checkpoints on the way, resume, shutdown signals,
 * final report.
 */
#include "cli/train/training_loop.h"

#include <math.h>

#include "cli/job/job_processes.h"
#include "cli/job/shutdown_signals.h"
#include "cli/output/metrics_plot.h"
#include "cli/output/progress.h"
#include "cli/reports/collective_tables.h"
#include "cli/timing/peak_flops.h"
#include "cli/timing/suspensions.h"
#include "cli/train/run_folder.h"

/* A training run. */
typedef struct run {
    const clv_train_args *args;
    const clv_model *model;
    const clv_train_data *data;
    const char *command;
    clv_trainer *trainer;
    char *checkpoints;     /* their folder */
    clv_prefetch *batches; /* of steps; NULL: none requested yet */
    clv_train_batch batch; /* of --val */
    int64_t look_every;    /* steps between checks for a shutdown signal in any process */
    bool goes_on;          /* resumed from a checkpoint */
    bool passed;           /* a step without counted labels was reported */
    bool waits;            /* so was a lack of memory for background checkpoints */
    int64_t interrupted;   /* steps during which the process was suspended */
    clv_run_folder folder;
    clv_train_totals total;
    clv_traced_steps trace;
    double at_peak; /* seconds of a step's flops at the peak rates of all ranks; 0: unknown */
} run;

/* ---- steps ---- */

/* Prints the rates of a step as JSON; did NULL: null, as of a step during which the process was suspended (Ctrl-Z). */
enum { RATES = 192 };

static void print_rates(char out[RATES], const run *r, const clv_train_step *did, double tokens)
{
    char mfu[32] = "null";
    if (!did) {
        snprintf(out, RATES,
                 "\"tokens_per_s\":null,\"comm_share\":null,\"overlapped_share\":null,\"seconds\":null,\"mfu\":null");
        return;
    }
    if (r->at_peak > 0)
        snprintf(mfu, sizeof mfu, "%.4f", r->at_peak / did->seconds);
    snprintf(out, RATES,
             "\"tokens_per_s\":%.1f,\"comm_share\":%.4f,\"overlapped_share\":%.4f,\"seconds\":%.6g,\"mfu\":%s",
             tokens / did->seconds, did->comm_seconds / did->seconds,
             clv_overlapped_fraction(did->overlapped_seconds, did->comm_seconds), did->seconds, mfu);
}

static void log_step(run *r, const clv_train_step *did, double tokens, bool timed, const char *val)
{
    char line[704], rates[RATES], dropped[48] = "";
    print_rates(rates, r, timed ? did : NULL, tokens);
    if (did->dropped > 0)
        snprintf(dropped, sizeof dropped, ",\"dropped\":%lld", (long long)did->dropped);
    snprintf(line, sizeof line,
             "{\"step\":%lld,\"loss\":%.9g,\"grad_norm\":%.9g,\"lr\":%.6g,%s,\"skipped\":%lld%s%s}\n",
             (long long)did->step, did->loss, did->grad_norm, did->lr, rates,
             (long long)clv_trainer_steps_skipped(r->trainer), dropped, val);
    clv_run_folder_append_metrics(&r->folder, line);
}

/* Logs a step without a loss. */
static void log_nothing(run *r, const clv_train_step *did, const char *val)
{
    char line[512], rates[RATES];
    print_rates(rates, r, NULL, 0);
    snprintf(line, sizeof line, "{\"step\":%lld,\"loss\":null,\"grad_norm\":null,\"lr\":%.6g,%s,\"skipped\":%lld%s}\n",
             (long long)did->step, did->lr, rates, (long long)clv_trainer_steps_skipped(r->trainer), val);
    clv_run_folder_append_metrics(&r->folder, line);
}

/* Logs a step with numbers that are not finite. */
static void log_skipped(run *r, const clv_train_step *did, const char *val)
{
    clv_log("%s: note: skipped: %s", r->command, clv_trainer_nonfinite(r->trainer));
    log_nothing(r, did, val);
}

/* Logs a step without counted labels; the first is reported. */
static void log_passed(run *r, const clv_train_step *did, const char *val)
{
    if (!r->passed)
        clv_log("%s: note: of step %lld no label counts, and nothing changes; such steps have no loss (null) "
                "in metrics.jsonl",
                r->command, (long long)did->step);
    r->passed = true;
    log_nothing(r, did, val);
}

static void add_up(clv_train_totals *total, const clv_train_step *did, bool timed)
{
    total->loss = did->loss;
    total->mean_loss = total->mean_loss == 0 ? did->loss : 0.9 * total->mean_loss + 0.1 * did->loss;
    if (!timed)
        return;
    total->timed++;
    total->seconds += did->seconds;
    total->comm_seconds += did->comm_seconds;
    total->overlapped_seconds += did->overlapped_seconds;
}

/* Evaluates on --val if due after `done` steps: fields for a line of metrics; else "". */
static clv_status evaluate(char *out, size_t size, run *r, int64_t done, clv_error *err)
{
    const clv_train_args *a = r->args;
    int64_t every = a->data.eval_every;
    out[0] = '\0';
    if (!r->data->val || (done < a->steps && (every == 0 || done % every != 0)))
        return CLV_OK;
    CLV_TRY(clv_train_validate(&r->total.val_loss, r->data, r->trainer, a->trainer.batch, &r->batch, err));
    snprintf(out, size, ",\"val_loss\":%.9g,\"val_perplexity\":%.9g", r->total.val_loss, exp(r->total.val_loss));
    return CLV_OK;
}

static clv_status evaluate_before(run *r, clv_error *err)
{
    clv_train_totals *t = &r->total;
    if (!r->data->val || clv_trainer_steps_done(r->trainer) == r->args->steps)
        return CLV_OK;
    CLV_TRY(clv_train_validate(&t->val_before, r->data, r->trainer, r->args->trainer.batch, &r->batch, err));
    t->val_loss = t->val_before;
    fprintf(stderr, "before: validation loss %.4f, perplexity %.4g\n", t->val_before, exp(t->val_before));
    return CLV_OK;
}

/* The progress line, most important values first; times are means over all steps of this process. */
enum { NOTE = 256 };

static void print_note(char out[NOTE], const run *r, const clv_train_step *did, double tokens)
{
    const clv_train_totals *t = &r->total;
    double seconds = t->timed > 0 ? t->seconds : 1, steps = (double)t->timed;
    char hidden[48] = "", valued[48] = "", mfu[32] = "";
    if (r->args->model.options.compile.overlap)
        snprintf(hidden, sizeof hidden, " (%.0f %% hidden)",
                 100 * clv_overlapped_fraction(t->overlapped_seconds, t->comm_seconds));
    if (r->data->val)
        snprintf(valued, sizeof valued, ", validation %.3f", t->val_loss);
    if (r->at_peak > 0)
        snprintf(mfu, sizeof mfu, ", MFU %.0f %%", 100 * r->at_peak * steps / seconds);
    snprintf(out, NOTE, "loss %.3f (mean %.3f)%s, %.0f tokens/s, lr %.3g, gradient %.3g, %.0f %% communication%s%s",
             did->loss, t->mean_loss, valued, tokens * steps / seconds, did->lr, did->grad_norm,
             100 * t->comm_seconds / seconds, hidden, mfu);
}

/* A clv_batch_source. */
static clv_status make_batch(void *arg, int64_t step, int32_t *ids, int32_t *labels, uint8_t *mask, clv_error *err)
{
    const run *r = arg;
    const clv_train_batch batch = {ids, labels, mask};
    return clv_train_data_fill_batch(r->data, step, r->args->trainer.batch, &batch, err);
}

static clv_status learn(run *r, int64_t step, clv_train_step *did, clv_error *err)
{
    const int32_t *ids, *labels;
    const uint8_t *mask;
    const clv_train_data *d = r->data;
    if (!r->batches)
        CLV_TRY(clv_prefetch_new(&r->batches, make_batch, r, r->args->trainer.batch * d->seq, d->padded, step, err));
    CLV_TRY(clv_prefetch_next(r->batches, &ids, &labels, &mask, err));
    return clv_trainer_step(r->trainer, ids, labels, mask, did, err);
}

static clv_status step(run *r, clv_progress *progress, clv_error *err)
{
    const clv_train_args *a = r->args;
    clv_train_totals *total = &r->total;
    clv_train_step did = {.size = sizeof did};
    double tokens = (double)(a->trainer.batch * a->trainer.seq);
    char note[NOTE], val[96];
    int stops = clv_suspensions_count();
    int64_t i = clv_trainer_steps_done(r->trainer);
    CLV_TRY(clv_traced_steps_before_step(&r->trace, clv_trainer_session(r->trainer), i, err));
    CLV_TRY(learn(r, i, &did, err));
    CLV_TRY(clv_traced_steps_after_step(&r->trace, clv_trainer_session(r->trainer), i, r->args->model.machine,
                                        r->command, err));
    bool timed = clv_suspensions_count() == stops;
    r->interrupted += !timed;
    CLV_TRY(evaluate(val, sizeof val, r, i + 1, err));
    if (did.labels == 0 || did.skipped) {
        (did.skipped ? log_skipped : log_passed)(r, &did, val);
        clv_progress_update(progress, i + 1, "no label counts");
        return CLV_OK;
    }
    log_step(r, &did, tokens, timed, val);
    add_up(total, &did, timed);
    print_note(note, r, &did, tokens);
    clv_progress_update(progress, i + 1, note);
    return CLV_OK;
}

/* ---- the picture ---- */

/* Plots all metrics so far; a failure is only reported. */
static void plot(const run *r)
{
    clv_error err = {0};
    const char *lines = r->folder.lines ? clv_run_folder_metrics_path(&r->folder) : NULL;
    if (r->args->plot && lines && clv_plot_metrics(&lines, 1, r->args->plot, &err) != CLV_OK)
        clv_log("%s: note: no plot: %s", r->command, err.message);
}

/* ---- checkpoints ---- */

static clv_status save_checkpoint(run *r, bool background, clv_error *err)
{
    clv_trainer_checkpoint_options options = {.size = sizeof options,
                                              .keep = (int)r->args->keep_last,
                                              .keep_every = r->args->keep_every,
                                              .background = background};
    CLV_TRY(clv_train_record_metadata(r->trainer, r->args, r->data, &r->total, err));
    clv_run_folder_sync_metrics(&r->folder);
    return clv_trainer_checkpoint(r->trainer, r->checkpoints, &options, err);
}

/* Training continues if a checkpoint fails (a full disk), but not if a process is missing. */
static clv_status skip_step(const run *r, long long steps, clv_status status, const clv_error *why, clv_error *err)
{
    if (status == CLV_ETIMEOUT) {
        *err = *why;
        return status;
    }
    if (status != CLV_OK)
        clv_log("%s: note: no checkpoint after step %lld: %s", r->command, steps, why->message);
    return CLV_OK;
}

/* Advances the checkpoint in progress, if any. */
static clv_status poll_background_save(const run *r, clv_status (*how)(clv_trainer *, clv_error *), clv_error *err)
{
    clv_error why = {0};
    long long steps = clv_trainer_checkpoint_in_progress(r->trainer);
    return steps < 0 ? CLV_OK : skip_step(r, steps, how(r->trainer, &why), &why, err);
}

static clv_status save_on_the_way(run *r, bool background, clv_error *err)
{
    clv_error why = {0};
    CLV_TRY(poll_background_save(r, clv_trainer_checkpoint_finish, err));
    clv_status status = save_checkpoint(r, background, &why);
    CLV_TRY(skip_step(r, clv_trainer_steps_done(r->trainer), status, &why, err));
    if (background && status == CLV_OK && clv_trainer_checkpoint_in_progress(r->trainer) < 0 && !r->waits) {
        clv_log("%s: note: no memory for a copy of the state; training waits while checkpoints are written",
                r->command);
        r->waits = true;
    }
    plot(r);
    return CLV_OK;
}

/* All processes check after the same steps: it is a collective operation. */
static int64_t count_eval_every(const clv_model_info *info, const clv_train_args *a)
{
    double seconds = 6e-11 * (double)info->parameters * (double)(a->trainer.batch * a->trainer.seq), often = 0.05;
    int64_t most = 64;
    if (clv_processes_count() <= 1 || seconds > often)
        return 1;
    return often / seconds < (double)most ? (int64_t)(often / seconds) : most;
}

/* The shutdown signal of any process; 0: none. Also advances the checkpoint in progress. */
static clv_status look(int *signal, const run *r, clv_error *err)
{
    int64_t most = 0;
    if (clv_trainer_steps_done(r->trainer) % r->look_every == 0) {
        CLV_TRY(clv_trainer_max_over_processes(r->trainer, clv_shutdown_signal(), &most, err));
        CLV_TRY(poll_background_save(r, clv_trainer_checkpoint_poll, err));
    }
    *signal = (int)most;
    return CLV_OK;
}

static clv_status leave(run *r, int signal, int *code, clv_error *err)
{
    long long done = clv_trainer_steps_done(r->trainer);
    *code = 128 + signal;
    if (done > 0) {
        clv_run_folder_release_space(&r->folder);
        CLV_TRY(save_checkpoint(r, false, err));
        clv_log("%s: %s: saved after step %lld of %lld in %s; --resume continues from there", r->command,
                clv_shutdown_signal_name(signal), done, (long long)r->args->steps, r->args->out);
    } else {
        clv_log("%s: %s: stopped before the first step", r->command, clv_shutdown_signal_name(signal));
    }
    return CLV_OK;
}

/* A step that failed for its numbers left the weights unchanged: they are saved. Of another failure the other processes
 * may not know. */
static void save_final_checkpoint(run *r)
{
    clv_error why = {0};
    long long done = clv_trainer_steps_done(r->trainer);
    bool by_numbers = clv_trainer_nonfinite(r->trainer) != NULL;
    if (by_numbers || clv_processes_count() <= 1)
        poll_background_save(r, clv_trainer_checkpoint_finish, &why);
    if (!by_numbers || done == 0)
        return;
    clv_run_folder_release_space(&r->folder);
    if (save_checkpoint(r, false, &why) == CLV_OK)
        clv_log("%s: note: saved after step %lld of %lld in %s; --resume continues from there", r->command, done,
                (long long)r->args->steps, r->args->out);
    else
        clv_log("%s: note: no checkpoint after step %lld: %s", r->command, done, why.message);
}

/* Whether to save after `done` steps; always after the last, from which a run with more steps can resume. */
static bool is_saved(const run *r, int64_t done)
{
    const clv_train_args *a = r->args;
    bool is_last = done == a->steps;
    return a->save_every > 0 ? is_last || done % a->save_every == 0 : is_last && r->goes_on;
}

/* Runs steps until all are done, or *signal is set. */
static clv_status take_steps(run *r, int *signal, clv_error *err)
{
    const clv_train_args *a = r->args;
    clv_progress progress;
    int64_t done = clv_trainer_steps_done(r->trainer);
    clv_progress_begin(&progress, "train", a->steps);
    while (done < a->steps) {
        CLV_TRY(look(signal, r, err));
        if (*signal)
            break;
        clv_status status = step(r, &progress, err);
        if (status != CLV_OK) {
            save_final_checkpoint(r);
            return status;
        }
        done++;
        if (is_saved(r, done))
            CLV_TRY(save_on_the_way(r, !a->save_wait && done < a->steps, err));
    }
    clv_progress_end(&progress);
    return poll_background_save(r, clv_trainer_checkpoint_finish, err);
}

/* *code is set only if the run ended by a signal. */
static clv_status run_steps(run *r, int *code, clv_error *err)
{
    int signal = 0;
    clv_status status = take_steps(r, &signal, err);
    if (status != CLV_OK) {
        bool alike = r->args->on_nan == CLV_ON_NAN_STOP && clv_trainer_nonfinite(r->trainer); /* in all processes */
        clv_traced_steps_write_after_failure(&r->trace, clv_trainer_session(r->trainer), r->args->model.machine, !alike,
                                             r->command);
        return status;
    }
    CLV_TRY(clv_traced_steps_write_early(&r->trace, clv_trainer_session(r->trainer), r->args->model.machine, r->command,
                                         err));
    if (r->interrupted > 0)
        clv_log("%s: note: the process was suspended during %lld step%s; their times are not counted", r->command,
                (long long)r->interrupted, r->interrupted == 1 ? "" : "s");
    return signal ? leave(r, signal, code, err) : CLV_OK;
}

/* ---- the folder ---- */

static void print_start(const run *r, const clv_model_info *info)
{
    long long ranks = clv_mesh_rank_count(clv_model_mesh(r->model));
    char beside[64] = "";
    if (info->adapter_rank > 0)
        snprintf(beside, sizeof beside, " beside %.2f M", 1e-6 * (double)info->parameters);
    int64_t trained = info->adapter_rank > 0 ? info->adapter_parameters : info->parameters;
    fprintf(stderr, "training %.2f M parameters%s on %lld tokens over %lld rank%s", 1e-6 * (double)trained, beside,
            (long long)r->data->tokens, ranks, ranks == 1 ? "" : "s");
    clv_stage_info stage = {.size = sizeof stage};
    const int stages = clv_program_stages(clv_trainer_program(r->trainer));
    if (stages > 1 && clv_program_stage(clv_trainer_program(r->trainer), NULL, 0, &stage, NULL) == CLV_OK)
        fprintf(stderr, ", in %d stages by %s", stages, clv_plan_schedule_name(stage.schedule));
    fprintf(stderr, "\n");
}

static bool saves_adapters(const clv_train_args *a)
{
    return a->lora_save && strcmp(a->lora_save, "adapter") == 0;
}

/* Saves a Hugging Face folder of the weights, or of adapters alone, with the tokenizer of the model, or that of
 * bytes where they are what it learned. */
static clv_status save(const run *r, clv_error *err)
{
    const clv_train_args *a = r->args;
    CLV_TRY(saves_adapters(a) ? clv_trainer_save_adapters(r->trainer, a->out, err)
                              : clv_trainer_save(r->trainer, a->out, err));
    if (!clv_processes_is_first())
        return CLV_OK;
    if (a->folder)
        return clv_tokenizer_copy(clv_model_folder(r->model), a->out, err);
    return r->data->bytes ? clv_tokenizer_write_bytes(a->out, err) : CLV_OK;
}

/* The first process makes it; the others wait until they see it. */
static clv_status open_folder(run *r, int64_t bytes, clv_error *err)
{
    clv_status status = CLV_OK;
    if (clv_processes_is_first())
        status = clv_run_folder_open(&r->folder, r->args->out, bytes, r->args->resume, err);
    return clv_processes_agree(status, err);
}

static void print_resumed(const run *r, const clv_resumed *did)
{
    if (did->damaged > 0)
        clv_log("%s: note: %s", r->command, did->damage.message);
    if (did->damaged > 1)
        clv_log("%s: note: %d checkpoints are damaged", r->command, did->damaged);
    if (!did->found)
        clv_log("%s: note: --resume: %s holds no checkpoint; starting a new run", r->command, r->args->out);
}

static clv_status resume(run *r, clv_error *err)
{
    clv_resumed did = {.size = sizeof did};
    CLV_TRY(clv_trainer_resume(r->trainer, r->checkpoints, &did, err));
    print_resumed(r, &did);
    r->goes_on = did.found;
    if (!did.found)
        return CLV_OK;
    CLV_TRY(clv_train_check_metadata(&r->total, r->trainer, r->args, r->data, r->command, err));
    clv_log("%s: resuming after step %lld of %lld, from %s/checkpoints", r->command, (long long)did.steps,
            (long long)r->args->steps, r->args->out);
    return CLV_OK;
}

static clv_status begin_lines(run *r, clv_error *err)
{
    clv_status status = CLV_OK;
    if (clv_processes_is_first())
        status = clv_run_folder_begin_metrics(&r->folder, clv_trainer_steps_done(r->trainer), r->command, err);
    CLV_TRY(clv_processes_agree(status, err));
    return clv_processes_agree(clv_processes_is_first() ? CLV_OK : clv_run_folder_await_visible(r->args->out, err),
                               err);
}

/* From --hardware, else from a product that is timed now; none with --check, which is slow. */
static clv_status find_peak(run *r, clv_error *err)
{
    const clv_program *program = clv_trainer_program(r->trainer);
    clv_prediction of = {.size = sizeof of};
    clv_dtype dtype = clv_model_dtype(r->model);
    double peak = 0;
    if (r->args->model.options.check)
        return CLV_OK;
    if (r->args->model.hardware)
        peak = clv_machine_flops(r->args->model.machine, dtype) *
               (double)r->args->model.threads; /* a rank of a machine is a core */
    else
        CLV_TRY(clv_peak_flops_measure(&peak, clv_trainer_session(r->trainer), clv_model_mesh(r->model), dtype, err));
    CLV_TRY(clv_program_predict(program, r->args->model.machine, &of, err));
    r->at_peak = peak > 0 ? of.model_flops / (peak * (double)clv_mesh_rank_count(clv_model_mesh(r->model))) : 0;
    return CLV_OK;
}

static clv_status run_in_folder(run *r, int *code, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_get_info(r->model, &info, err));
    int64_t saved = saves_adapters(r->args) ? info.adapter_parameters : info.parameters;
    CLV_TRY(open_folder(r, saved * (int64_t)clv_dtype_size(clv_model_dtype(r->model)), err));
    r->look_every = count_eval_every(&info, r->args);
    clv_model_option_print_chosen(&r->args->model, r->command);
    clv_mesh_option_warn_oversubscribed(clv_model_mesh(r->model), r->command);
    if (r->args->resume)
        CLV_TRY(resume(r, err));
    CLV_TRY(begin_lines(r, err));
    print_start(r, &info);
    clv_shutdown_signals_install();
    CLV_TRY(find_peak(r, err));
    CLV_TRY(evaluate_before(r, err));
    CLV_TRY(run_steps(r, code, err));
    if (*code != CLV_EXIT_OK)
        return CLV_OK;
    clv_run_folder_release_space(&r->folder);
    CLV_TRY(save(r, err));
    return clv_processes_is_first() ? clv_run_folder_finish(&r->folder, err) : CLV_OK;
}

/* ---- all of it ---- */

static clv_status open_run(run *r, clv_error *err)
{
    const clv_train_args *a = r->args;
    clv_trainer_options options = a->trainer;
    options.padding_mask = r->data->padded;
    if (r->data->val)
        CLV_TRY(clv_train_batch_alloc(&r->batch, r->data, options.batch, err));
    if (asprintf(&r->checkpoints, "%s/checkpoints", a->out) < 0) {
        r->checkpoints = NULL;
        return clv_fail_memory(err, "the name of a folder", strlen(a->out));
    }
    return clv_trainer_new(&r->trainer, r->model, &options, err);
}

static clv_status report(clv_invocation *invocation, const run *r, clv_error *err)
{
    const clv_train_args *a = r->args;
    const clv_train_totals *total = &r->total;
    const clv_program *program = clv_trainer_program(r->trainer);
    clv_table *t = invocation->table = clv_collective_table_by_kind(program);
    clv_table_begin_top_level(t);
    clv_stage_info stage = {.size = sizeof stage};
    if (clv_program_stages(program) > 1 && clv_program_stage(program, NULL, 0, &stage, NULL) == CLV_OK)
        clv_table_text(t, "pipeline_schedule", clv_plan_schedule_name(stage.schedule));
    clv_table_real(t, "loss", total->loss);
    clv_table_real(t, "mean_loss", total->mean_loss);
    if (r->data->val) {
        clv_table_real(t, "val_loss", total->val_loss);
        clv_table_real(t, "val_perplexity", exp(total->val_loss));
        clv_table_real(t, "val_loss_before", total->val_before);
    }
    clv_table_seconds(t, "seconds", total->seconds);
    clv_table_real(t, "tokens_per_s", (double)(a->trainer.batch * a->trainer.seq * total->timed) / total->seconds);
    clv_table_fraction(t, "comm_share", total->comm_seconds / total->seconds);
    clv_table_fraction(t, "overlapped_share", clv_overlapped_fraction(total->overlapped_seconds, total->comm_seconds));
    if (r->at_peak > 0)
        clv_table_fraction(t, "mfu", r->at_peak * (double)total->timed / total->seconds);
    if (a->model.hardware) {
        clv_prediction predicted = {.size = sizeof predicted};
        clv_program_predict(program, r->args->model.machine, &predicted, NULL);
        clv_table_fraction(t, "predicted_comm_share", predicted.communication / predicted.seconds);
        clv_table_fraction(t, "predicted_overlapped_share",
                           clv_overlapped_fraction(predicted.overlapped, predicted.communication));
    }
    clv_table_bytes(t, "region_bytes_per_rank", (double)clv_program_region_bytes(program));
    clv_table_text(t, "checkpoint", a->out);
    return clv_traced_steps_add_op_times(t, &r->trace, err);
}

clv_status clv_train_run(clv_invocation *invocation, const clv_train_args *args, const clv_model *model,
                         const clv_train_data *data, clv_error *err)
{
    run r = {.args = args,
             .model = model,
             .data = data,
             .command = invocation->name,
             .trace = args->trace,
             .folder = (clv_run_folder){.lock = -1, .reserved_fd = -1}};
    int *code = &invocation->code;
    clv_status status = clv_train_check_processes_agree(data, err);
    if (status == CLV_OK)
        status = clv_traced_steps_open(&r.trace, err);
    if (status == CLV_OK)
        status = open_run(&r, err);
    if (status == CLV_OK)
        status = run_in_folder(&r, code, err);
    plot(&r);
    clv_run_folder_close(&r.folder);
    if (status == CLV_OK && *code == CLV_EXIT_OK)
        status = report(invocation, &r, err);
    clv_traced_steps_close(&r.trace);
    clv_trainer_free(r.trainer);
    free(r.checkpoints);
    clv_prefetch_free(r.batches);
    clv_train_batch_free(&r.batch);
    return status;
}
