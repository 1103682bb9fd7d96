/* training_loop.h - the training loop: steps, validation, metrics, checkpoints on the way, resume, shutdown signals,
 * final report.
 */
#pragma once

#include "cli/command.h"
#include "cli/train/optimizer_options.h"
#include "cli/train/traced_steps.h"
#include "cli/train/training_data.h"

typedef struct clv_train_args {
    const clv_option *options; /* the command's, of which run metadata is recorded */
    int n_options;
    clv_data_option data;
    clv_model_option model;      /* without path */
    const char *folder, *config; /* -m, --config: at most one; neither: a new model of `sizes` */
    clv_model_info sizes;
    clv_lora_options lora;
    const char *adapters, *lora_save; /* --lora: a folder to continue from; NULL: merged */
    const char *out, *plot;
    clv_trainer_options trainer;
    clv_on_nan on_nan;
    clv_optimizer_option optimizer;
    int64_t steps;
    bool resume, save_wait;
    int64_t save_every, keep_last, keep_every; /* checkpoints; save_every 0: only when a signal ends the run */
    clv_traced_steps trace;
} clv_train_args;

/* Trains; sets run->table to the summary, and run->code to that of a signal that ended the run. */
clv_status clv_train_run(clv_invocation *run, const clv_train_args *args, const clv_model *model,
                         const clv_train_data *data, clv_error *err);

/* Results of a run. */
typedef struct clv_train_totals {
    double loss;      /* of the last step */
    double mean_loss; /* moving average, a tenth each step; 0: no step */
    int64_t timed;    /* steps without a suspension; the times are of these */
    double seconds, comm_seconds, overlapped_seconds;
    double val_before, val_loss; /* validation: before the first step of this process, and the last one */
} clv_train_totals;

/* ---- run_metadata.c: options and data of a run, recorded in its checkpoints ---- */

/* Whether all processes of a job have the same data. CLV_EINVAL naming the option */
clv_status clv_train_check_processes_agree(const clv_train_data *data, clv_error *err);
clv_status clv_train_record_metadata(clv_trainer *trainer, const clv_train_args *args, const clv_train_data *data,
                                     const clv_train_totals *totals, clv_error *err);
/* Compares with the checkpoint that the trainer resumed from, and reads its losses. An option that may change (rates,
 * steps) is a note on stderr, another one CLV_EINVAL. */
clv_status clv_train_check_metadata(clv_train_totals *totals, const clv_trainer *trainer, const clv_train_args *args,
                                    const clv_train_data *data, const char *command, clv_error *err);
