/* training_loop.h - the training loop: steps, validation, metrics, checkpoints on the way, resume, shutdown signals,
 * final report.
 */
#ifndef CLEAVE_CLI_TRAIN_TRAINING_LOOP_H
#define CLEAVE_CLI_TRAIN_TRAINING_LOOP_H

#include "cleave/train.h"
#include "cli/output/table.h"
#include "cli/options/lora_options.h"
#include "cli/options/mesh_options.h"
#include "cli/parser/option_parser.h"
#include "cli/options/recompute_options.h"
#include "cli/options/run_options.h"
#include "cli/train/training_data.h"
#include "cli/train/initial_model.h"
#include "cli/train/optimizer_options.h"
#include "cli/train/traced_steps.h"
#include "cli/options/auto_parallelism.h"

typedef struct clv_train_args {
    clv_data_option data;
    clv_initial_model_option start;
    clv_lora_option lora;
    const char *adapters, *lora_save; /* a folder to go on from; NULL: merged */
    const char *out;
    clv_mesh_option mesh;
    clv_run_option run;
    clv_auto_parallelism whole; /* as clv_model_option says it */
    const char *dtype, *comm_dtype, *grad_reduce_dtype, *hardware;
    clv_recompute_option recompute;
    const char *on_nan;
    double dropout, attention_dropout;
    clv_table_format form;
    bool resume, reshard_after_forward;
    int64_t layers, hidden, heads, kv_heads, ffn, seq, batch, steps, seed;
    bool save_wait;
    int64_t save_every, keep_last, keep_every; /* checkpoints; 0: when it is told to leave alone */
    clv_optimizer_option optimizer;
    clv_traced_steps trace;
    const char *plot;
} clv_train_args;

/* Trains, and prints what came of it, beside what was predicted for a machine that --hardware named. *code: the exit
 * code, which a signal that asked to leave decides too. */
clv_status clv_train_run(const clv_train_args *args, const clv_model *model, const clv_machine *machine,
                         const clv_train_data *data, const char *command, int *code, clv_error *err);

/* What a run adds up to. */
typedef struct clv_train_totals {
    double loss;      /* of the last step */
    double mean_loss; /* over steps, each weighing a tenth of what is left by those after it; 0: there was none */
    int64_t timed;    /* steps during which the process was never stopped; the times are of these */
    double seconds, comm_seconds, overlapped_seconds;
    double val_before, val_loss; /* of --val: before the first step of this process, and last */
} clv_train_totals;

/* That all processes of a job were given the same; else CLV_EINVAL naming the option. */
clv_status clv_train_check_processes_agree(const clv_train_args *args, const clv_train_data *data, clv_error *err);
/* ---- run_metadata.c: what checkpoints hold of a run beside the trainer ---- */

clv_status clv_train_record_metadata(clv_trainer *trainer, const clv_train_args *args, const clv_train_data *data,
                                     const clv_train_totals *totals, clv_error *err);
/* Of the checkpoint that the trainer went on from: its losses, and whether its run was of the same data; what is a
 * choice (rates, steps) is said. CLV_EINVAL, naming the option. */
clv_status clv_train_check_metadata(clv_train_totals *totals, const clv_trainer *trainer, const clv_train_args *args,
                                    const clv_train_data *data, const char *command, clv_error *err);

#endif
