/* run_metadata.c - run metadata in training checkpoints: options and data checksums are recorded, and compared on
 * --resume and across processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/job/job_processes.h"
#include "cli/job/option_consistency.h"
#include "cli/output/messages.h"
#include "cli/train/training_loop.h"

enum { TEXT = 64, MAX_RECORDS = 40 };

/* What a run records. */
typedef struct record {
    char option[32];
    bool may_change; /* a resumed run may have another value */
    char value[TEXT];
} record;

/* Options that are recorded: a resumed run must have the same values of some, and may change others. */
static const char fixed[] = "--no-shuffle --seed --batch --seq --optimizer --lora-rank --lora-alpha";
static const char changeable[] =
    "--accumulate --steps --lr --warmup --weight-decay --schedule --min-lr --decay-steps --momentum --betas --eps "
    "--decay-all --clip --hidden-dropout --attention-dropout --on-nan --dtype --lora-dropout --comm-dtype "
    "--grad-reduce-dtype --no-sync --moe-router-bias-update-rate";

/* The data, which options alone do not say. */
static int list_data(record out[MAX_RECORDS], const clv_train_data *d)
{
    static const char format[] = "%lld tokens, checksum %016llx";
    int n = 0;
    out[n] = (record){.option = "--data"};
    snprintf(out[n++].value, TEXT, format, (long long)d->tokens, (unsigned long long)d->checksum);
    out[n] = (record){.option = "--rows"};
    snprintf(out[n++].value, TEXT, "%s", d->rows);
    out[n] = (record){.option = "--mask-rate"};
    snprintf(out[n++].value, TEXT, "%g", d->mask_rate);
    out[n] = (record){.option = "--val", .may_change = true};
    snprintf(out[n++].value, TEXT, format, (long long)d->val_tokens, (unsigned long long)d->val_checksum);
    return n;
}

static int list_options(record *out, const char *options, bool may_change, const clv_train_args *a)
{
    int n = 0;
    for (size_t length; *options; options += length + strspn(options + length, " "), n++) {
        length = strcspn(options, " ");
        out[n] = (record){.may_change = may_change};
        memcpy(out[n].option, options, length);
        FILE *to = fmemopen(out[n].value, TEXT, "w");
        if (to) {
            clv_option_write_value(to, clv_option_find(a->options, a->n_options, out[n].option));
            fclose(to);
        }
    }
    return n;
}

static int list_all(record out[MAX_RECORDS], const clv_train_args *a, const clv_train_data *data)
{
    int n = list_data(out, data);
    n += list_options(out + n, fixed, false, a);
    return n + list_options(out + n, changeable, true, a);
}

/* "--weight-decay" -> "weight_decay" */
static const char *key_of(char key[TEXT], const char *option)
{
    snprintf(key, TEXT, "%s", option + strlen("--"));
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
    return key;
}

clv_status clv_train_check_processes_agree(const clv_train_data *data, clv_error *err)
{
    record records[MAX_RECORDS];
    clv_job_value given[MAX_RECORDS];
    int n = list_data(records, data);
    for (int i = 0; i < n; i++)
        given[i] = (clv_job_value){records[i].option, records[i].value};
    return clv_processes_check_equal(given, n, err);
}

static clv_status record_real(clv_trainer *trainer, const char *key, double value, clv_error *err)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%.17g", value);
    return clv_trainer_set_metadata(trainer, key, text, err);
}

clv_status clv_train_record_metadata(clv_trainer *trainer, const clv_train_args *args, const clv_train_data *data,
                                     const clv_train_totals *totals, clv_error *err)
{
    record records[MAX_RECORDS];
    char key[TEXT];
    for (int i = 0, n = list_all(records, args, data); i < n; i++)
        CLV_TRY(clv_trainer_set_metadata(trainer, key_of(key, records[i].option), records[i].value, err));
    CLV_TRY(record_real(trainer, "loss", totals->loss, err));
    return record_real(trainer, "mean_loss", totals->mean_loss, err);
}

static double read_real(const clv_trainer *trainer, const char *key)
{
    const char *text = clv_trainer_get_metadata(trainer, key);
    return text ? strtod(text, NULL) : 0;
}

clv_status clv_train_check_metadata(clv_train_totals *totals, const clv_trainer *trainer, const clv_train_args *args,
                                    const clv_train_data *data, const char *command, clv_error *err)
{
    record records[MAX_RECORDS];
    char key[TEXT];
    long long done = clv_trainer_steps_done(trainer);
    for (int i = 0, n = list_all(records, args, data); i < n; i++) {
        const record *r = &records[i];
        const char *before = clv_trainer_get_metadata(trainer, key_of(key, r->option));
        if (!before || strcmp(before, r->value) == 0)
            continue;
        if (!r->may_change)
            return clv_fail(err, CLV_EINVAL, "%s is %s; the run in %s has %s; valid: the same value, or another --out",
                            r->option, r->value, args->out, before);
        clv_log("%s: note: %s is %s from here on; it was %s", command, r->option, r->value, before);
    }
    if (done > args->steps)
        return clv_fail(err, CLV_EINVAL, "--steps %lld; the run in %s has done %lld; valid: as many, or more",
                        (long long)args->steps, args->out, done);
    totals->loss = read_real(trainer, "loss");
    totals->mean_loss = read_real(trainer, "mean_loss");
    return CLV_OK;
}
