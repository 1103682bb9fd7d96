#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/say.h"
#include "cli/train_run.h"

enum { TEXT = 64 };

/* What a run is told by: an option, and its value as text. */
typedef struct noted_option {
    const char *option, *key;
    bool may_change; /* a choice; else a run of another is another run */
    char value[TEXT];
} noted_option;

enum { OPTIONS = 9 };

static int list_options(noted_option out[OPTIONS], const clv_train_args *a, const clv_text_data *data)
{
    const noted_option all[OPTIONS] = {
        {"--text", "text", false, ""},
        {"--seed", "seed", false, ""},
        {"--batch", "batch", false, ""},
        {"--seq", "seq", false, ""},
        {"--steps", "steps", true, ""},
        {"--lr", "lr", true, ""},
        {"--warmup", "warmup", true, ""},
        {"--weight-decay", "weight_decay", true, ""},
        {"--comm-dtype", "comm_dtype", true, ""},
    };
    const long long whole[OPTIONS] = {[1] = a->seed, [2] = a->batch, [3] = a->seq, [4] = a->steps, [6] = a->warmup};
    memcpy(out, all, sizeof all);
    for (int i = 1; i < OPTIONS; i++)
        snprintf(out[i].value, TEXT, "%lld", whole[i]);
    snprintf(out[0].value, TEXT, "%lld bytes, checksum %016llx", (long long)clv_text_data_size(data),
             (unsigned long long)clv_text_data_checksum(data));
    snprintf(out[5].value, TEXT, "%.17g", a->lr);
    snprintf(out[7].value, TEXT, "%.17g", a->weight_decay);
    snprintf(out[8].value, TEXT, "%s", a->comm_dtype);
    return OPTIONS;
}

static clv_status note_real(clv_trainer *trainer, const char *key, double value, clv_error *err)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%.17g", value);
    return clv_trainer_note(trainer, key, text, err);
}

clv_status clv_train_note(clv_trainer *trainer, const clv_train_args *args, const clv_text_data *data,
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
    if (strchr(value, '.') && !strchr(value, ' '))
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
                                 const clv_text_data *data, const char *command, clv_error *err)
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
