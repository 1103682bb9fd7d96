#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/processes.h"
#include "cli/say.h"
#include "cli/train_run.h"

enum { TEXT = 64 };

/* What a run is told by: an option, and its value as text. */
typedef struct noted_option {
    const char *option, *key;
    bool may_change; /* a choice; else a run of another is another run */
    char value[TEXT];
} noted_option;

static void say_data(char out[TEXT], const void *data)
{
    const clv_train_data *d = data;
    snprintf(out, TEXT, "%lld tokens, checksum %016llx", (long long)d->tokens, (unsigned long long)d->checksum);
}

static void say_val(char out[TEXT], const void *data)
{
    const clv_train_data *d = data;
    snprintf(out, TEXT, "%lld tokens, checksum %016llx", (long long)d->val_tokens, (unsigned long long)d->val_checksum);
}

static void say_whole(char out[TEXT], const void *value)
{
    snprintf(out, TEXT, "%lld", (long long)*(const int64_t *)value);
}

static void say_real(char out[TEXT], const void *value)
{
    snprintf(out, TEXT, "%.17g", *(const double *)value);
}

static void say_flag(char out[TEXT], const void *value)
{
    snprintf(out, TEXT, "%s", *(const bool *)value ? "given" : "not given");
}

static void say_word(char out[TEXT], const void *value)
{
    const char *word = *(const char *const *)value;
    snprintf(out, TEXT, "%s", word ? word : "not given");
}

enum { OPTIONS = 32 /* at most */ };

static int list_options(noted_option out[OPTIONS], const clv_train_args *a, const clv_train_data *data)
{
    const struct {
        noted_option option;
        void (*say)(char out[TEXT], const void *value);
        const void *value;
    } all[] = {
        {{"--data", "text", false, ""}, say_data, data},
        {{"--no-shuffle", "no_shuffle", false, ""}, say_flag, &a->data.no_shuffle},
        {{"--rows", "rows", false, ""}, say_word, &data->rows},
        {{"--mask-rate", "mask_rate", false, ""}, say_real, &data->mask_rate},
        {{"--val", "val", true, ""}, say_val, data},
        {{"--seed", "seed", false, ""}, say_whole, &a->seed},
        {{"--batch", "batch", false, ""}, say_whole, &a->batch},
        {{"--accumulate", "accumulate", true, ""}, say_whole, &a->optimizer.accumulate},
        {{"--seq", "seq", false, ""}, say_whole, &a->seq},
        {{"--steps", "steps", true, ""}, say_whole, &a->steps},
        {{"--lr", "lr", true, ""}, say_real, &a->optimizer.lr},
        {{"--warmup", "warmup", true, ""}, say_whole, &a->optimizer.warmup},
        {{"--weight-decay", "weight_decay", true, ""}, say_real, &a->optimizer.weight_decay},
        {{"--schedule", "schedule", true, ""}, say_word, &a->optimizer.schedule},
        {{"--min-lr", "min_lr", true, ""}, say_real, &a->optimizer.min_lr},
        {{"--decay-steps", "decay_steps", true, ""}, say_whole, &a->optimizer.decay_steps},
        {{"--optimizer", "optimizer", false, ""}, say_word, &a->optimizer.optimizer},
        {{"--momentum", "momentum", true, ""}, say_real, &a->optimizer.momentum},
        {{"--betas", "betas", true, ""}, say_word, &a->optimizer.betas},
        {{"--eps", "eps", true, ""}, say_real, &a->optimizer.eps},
        {{"--decay-all", "decay_all", true, ""}, say_flag, &a->optimizer.decay_all},
        {{"--clip", "clip", true, ""}, say_real, &a->optimizer.clip},
        {{"--hidden-dropout", "hidden_dropout", true, ""}, say_real, &a->dropout},
        {{"--attention-dropout", "attention_dropout", true, ""}, say_real, &a->attention_dropout},
        {{"--on-nan", "on_nan", true, ""}, say_word, &a->on_nan},
        {{"--dtype", "dtype", true, ""}, say_word, &a->dtype},
        {{"--lora-rank", "lora_rank", false, ""}, say_whole, &a->lora.rank},
        {{"--lora-alpha", "lora_alpha", false, ""}, say_real, &a->lora.alpha},
        {{"--lora-dropout", "lora_dropout", true, ""}, say_real, &a->lora.dropout},
        {{"--comm-dtype", "comm_dtype", true, ""}, say_word, &a->comm_dtype},
        {{"--grad-reduce-dtype", "grad_reduce_dtype", true, ""}, say_word, &a->grad_reduce_dtype},
    };
    const int n = (int)(sizeof all / sizeof all[0]);
    _Static_assert(sizeof all / sizeof all[0] <= OPTIONS, "there is room for each");
    for (int i = 0; i < n; i++) {
        out[i] = all[i].option;
        all[i].say(out[i].value, all[i].value);
    }
    return n;
}

clv_status clv_train_compare(const clv_train_args *args, const clv_train_data *data, clv_error *err)
{
    noted_option options[OPTIONS];
    clv_job_alike given[OPTIONS];
    int n = list_options(options, args, data);
    for (int i = 0; i < n; i++)
        given[i] = (clv_job_alike){options[i].option, options[i].value};
    return clv_processes_compare(given, n, err);
}

static clv_status note_real(clv_trainer *trainer, const char *key, double value, clv_error *err)
{
    char text[TEXT];
    say_real(text, &value);
    return clv_trainer_note(trainer, key, text, err);
}

clv_status clv_train_note(clv_trainer *trainer, const clv_train_args *args, const clv_train_data *data,
                          const clv_train_totals *totals, clv_error *err)
{
    noted_option options[OPTIONS];
    for (int i = 0, n = list_options(options, args, data); i < n; i++)
        CLV_TRY(clv_trainer_note(trainer, options[i].key, options[i].value, err));
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
    const char *text = clv_trainer_noted(trainer, key);
    return text ? strtod(text, NULL) : 0;
}

clv_status clv_train_check_notes(clv_train_totals *totals, const clv_trainer *trainer, const clv_train_args *args,
                                 const clv_train_data *data, const char *command, clv_error *err)
{
    noted_option options[OPTIONS];
    char was[TEXT], is[TEXT];
    long long done = clv_trainer_steps_done(trainer);
    for (int i = 0, n = list_options(options, args, data); i < n; i++) {
        const noted_option *o = &options[i];
        const char *noted = clv_trainer_noted(trainer, o->key);
        if (!noted || strcmp(noted, o->value) == 0)
            continue;
        if (!o->may_change)
            return clv_fail(err, CLV_EINVAL,
                            "%s is %s; the run in %s was begun with %s; valid: the same, or another --out", o->option,
                            shown(is, o->value), args->out, shown(was, noted));
        clv_say("%s: note: %s is %s from here on; the run was begun with %s", command, o->option, shown(is, o->value),
                shown(was, noted));
    }
    if (done > args->steps)
        return clv_fail(err, CLV_EINVAL, "--steps %lld; the run in %s has done %lld; valid: as many, or more",
                        (long long)args->steps, args->out, done);
    totals->loss = noted_real(trainer, "loss");
    totals->mean_loss = noted_real(trainer, "mean_loss");
    return CLV_OK;
}
