/* run_metadata.c - run metadata in training checkpoints: options and data checksums are recorded, and compared on
 * --resume and across processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/job_processes.h"
#include "cli/output/messages.h"
#include "cli/train/training_loop.h"

enum { TEXT = 64 };

/* What a run is told by: an option, and its value as text. */
typedef struct recorded_option {
    const char *option, *key;
    bool may_change; /* a choice; else a run of another is another run */
    char value[TEXT];
} recorded_option;

static void format_data(char out[TEXT], const void *data)
{
    const clv_train_data *d = data;
    snprintf(out, TEXT, "%lld tokens, checksum %016llx", (long long)d->tokens, (unsigned long long)d->checksum);
}

static void format_val(char out[TEXT], const void *data)
{
    const clv_train_data *d = data;
    snprintf(out, TEXT, "%lld tokens, checksum %016llx", (long long)d->val_tokens, (unsigned long long)d->val_checksum);
}

static void format_int(char out[TEXT], const void *value)
{
    snprintf(out, TEXT, "%lld", (long long)*(const int64_t *)value);
}

static void format_real(char out[TEXT], const void *value)
{
    snprintf(out, TEXT, "%.17g", *(const double *)value);
}

static void format_flag(char out[TEXT], const void *value)
{
    snprintf(out, TEXT, "%s", *(const bool *)value ? "given" : "not given");
}

static void format_string(char out[TEXT], const void *value)
{
    const char *word = *(const char *const *)value;
    snprintf(out, TEXT, "%s", word ? word : "not given");
}

enum { OPTIONS = 32 /* at most */ };

static int list_options(recorded_option out[OPTIONS], const clv_train_args *a, const clv_train_data *data)
{
    const struct {
        recorded_option option;
        void (*say)(char out[TEXT], const void *value);
        const void *value;
    } all[] = {
        {{"--data", "text", false, ""}, format_data, data},
        {{"--no-shuffle", "no_shuffle", false, ""}, format_flag, &a->data.no_shuffle},
        {{"--rows", "rows", false, ""}, format_string, &data->rows},
        {{"--mask-rate", "mask_rate", false, ""}, format_real, &data->mask_rate},
        {{"--val", "val", true, ""}, format_val, data},
        {{"--seed", "seed", false, ""}, format_int, &a->seed},
        {{"--batch", "batch", false, ""}, format_int, &a->batch},
        {{"--accumulate", "accumulate", true, ""}, format_int, &a->optimizer.accumulate},
        {{"--seq", "seq", false, ""}, format_int, &a->seq},
        {{"--steps", "steps", true, ""}, format_int, &a->steps},
        {{"--lr", "lr", true, ""}, format_real, &a->optimizer.lr},
        {{"--warmup", "warmup", true, ""}, format_int, &a->optimizer.warmup},
        {{"--weight-decay", "weight_decay", true, ""}, format_real, &a->optimizer.weight_decay},
        {{"--schedule", "schedule", true, ""}, format_string, &a->optimizer.schedule},
        {{"--min-lr", "min_lr", true, ""}, format_real, &a->optimizer.min_lr},
        {{"--decay-steps", "decay_steps", true, ""}, format_int, &a->optimizer.decay_steps},
        {{"--optimizer", "optimizer", false, ""}, format_string, &a->optimizer.optimizer},
        {{"--momentum", "momentum", true, ""}, format_real, &a->optimizer.momentum},
        {{"--betas", "betas", true, ""}, format_string, &a->optimizer.betas},
        {{"--eps", "eps", true, ""}, format_real, &a->optimizer.eps},
        {{"--decay-all", "decay_all", true, ""}, format_flag, &a->optimizer.decay_all},
        {{"--clip", "clip", true, ""}, format_real, &a->optimizer.clip},
        {{"--hidden-dropout", "hidden_dropout", true, ""}, format_real, &a->dropout},
        {{"--attention-dropout", "attention_dropout", true, ""}, format_real, &a->attention_dropout},
        {{"--on-nan", "on_nan", true, ""}, format_string, &a->on_nan},
        {{"--dtype", "dtype", true, ""}, format_string, &a->dtype},
        {{"--lora-rank", "lora_rank", false, ""}, format_int, &a->lora.rank},
        {{"--lora-alpha", "lora_alpha", false, ""}, format_real, &a->lora.alpha},
        {{"--lora-dropout", "lora_dropout", true, ""}, format_real, &a->lora.dropout},
        {{"--comm-dtype", "comm_dtype", true, ""}, format_string, &a->comm_dtype},
        {{"--grad-reduce-dtype", "grad_reduce_dtype", true, ""}, format_string, &a->grad_reduce_dtype},
    };
    const int n = (int)(sizeof all / sizeof all[0]);
    _Static_assert(sizeof all / sizeof all[0] <= OPTIONS, "there is room for each");
    for (int i = 0; i < n; i++) {
        out[i] = all[i].option;
        all[i].say(out[i].value, all[i].value);
    }
    return n;
}

clv_status clv_train_check_processes_agree(const clv_train_args *args, const clv_train_data *data, clv_error *err)
{
    recorded_option options[OPTIONS];
    clv_job_value given[OPTIONS];
    int n = list_options(options, args, data);
    for (int i = 0; i < n; i++)
        given[i] = (clv_job_value){options[i].option, options[i].value};
    return clv_processes_check_equal(given, n, err);
}

static clv_status note_real(clv_trainer *trainer, const char *key, double value, clv_error *err)
{
    char text[TEXT];
    format_real(text, &value);
    return clv_trainer_set_metadata(trainer, key, text, err);
}

clv_status clv_train_record_metadata(clv_trainer *trainer, const clv_train_args *args, const clv_train_data *data,
                                     const clv_train_totals *totals, clv_error *err)
{
    recorded_option options[OPTIONS];
    for (int i = 0, n = list_options(options, args, data); i < n; i++)
        CLV_TRY(clv_trainer_set_metadata(trainer, options[i].key, options[i].value, err));
    CLV_TRY(note_real(trainer, "loss", totals->loss, err));
    return note_real(trainer, "mean_loss", totals->mean_loss, err);
}

/* As people gave it. */
static const char *shown(char out[TEXT], const char *value)
{
    if (strchr(value, '.') && !strpbrk(value, " ,"))
        snprintf(out, TEXT, "%g", strtod(value, NULL));
    else
        snprintf(out, TEXT, "%s", value);
    return out;
}

static double noted_real(const clv_trainer *trainer, const char *key)
{
    const char *text = clv_trainer_get_metadata(trainer, key);
    return text ? strtod(text, NULL) : 0;
}

clv_status clv_train_check_metadata(clv_train_totals *totals, const clv_trainer *trainer, const clv_train_args *args,
                                    const clv_train_data *data, const char *command, clv_error *err)
{
    recorded_option options[OPTIONS];
    char was[TEXT], is[TEXT];
    long long done = clv_trainer_steps_done(trainer);
    for (int i = 0, n = list_options(options, args, data); i < n; i++) {
        const recorded_option *o = &options[i];
        const char *noted = clv_trainer_get_metadata(trainer, o->key);
        if (!noted || strcmp(noted, o->value) == 0)
            continue;
        if (!o->may_change)
            return clv_fail(err, CLV_EINVAL,
                            "%s is %s; the run in %s was begun with %s; valid: the same, or another --out", o->option,
                            shown(is, o->value), args->out, shown(was, noted));
        clv_log("%s: note: %s is %s from here on; the run was begun with %s", command, o->option, shown(is, o->value),
                shown(was, noted));
    }
    if (done > args->steps)
        return clv_fail(err, CLV_EINVAL, "--steps %lld; the run in %s has done %lld; valid: as many, or more",
                        (long long)args->steps, args->out, done);
    totals->loss = noted_real(trainer, "loss");
    totals->mean_loss = noted_real(trainer, "mean_loss");
    return CLV_OK;
}
