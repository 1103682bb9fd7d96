/* train_run.h - a run of train: its steps, checkpoints on the way, going on from one. */
#ifndef CLEAVE_CLI_TRAIN_RUN_H
#define CLEAVE_CLI_TRAIN_RUN_H

#include "cleave/train.h"
#include "cli/table.h"
#include "cli/lora_option.h"
#include "cli/mesh_option.h"
#include "cli/options.h"
#include "cli/recompute_option.h"
#include "cli/run_option.h"
#include "cli/train_data.h"
#include "cli/train_model.h"
#include "cli/train_optimizer.h"
#include "cli/train_trace.h"
#include "cli/whole_machine.h"

typedef struct clv_train_args {
    clv_data_option data;
    clv_start_option start;
    clv_lora_option lora;
    const char *adapters, *lora_save; /* a folder to go on from; NULL: merged */
    const char *out;
    clv_mesh_option mesh;
    clv_run_option run;
    clv_whole_machine whole; /* as clv_model_option says it */
    const char *dtype, *comm_dtype, *grad_reduce_dtype, *hardware;
    clv_recompute_option recompute;
    const char *on_nan;
    double dropout, attention_dropout;
    clv_table_form form;
    bool resume, regather;
    int64_t layers, hidden, heads, kv_heads, ffn, seq, batch, steps, seed;
    bool save_wait;
    int64_t save_every, keep_last, keep_every; /* checkpoints; 0: when it is told to leave alone */
    clv_optimizer_option optimizer;
    clv_train_trace trace;
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
    double seconds, comm_seconds, hidden_seconds;
    double val_before, val_loss; /* of --val: before the first step of this process, and last */
} clv_train_totals;

/* That all processes of a job were given the same; else CLV_EINVAL naming the option. */
clv_status clv_train_compare(const clv_train_args *args, const clv_train_data *data, clv_error *err);
/* ---- train_notes.c: what checkpoints hold of a run beside the trainer ---- */

clv_status clv_train_note(clv_trainer *trainer, const clv_train_args *args, const clv_train_data *data,
                          const clv_train_totals *totals, clv_error *err);
/* Of the checkpoint that the trainer went on from: its losses, and whether its run was of the same data; what is a
 * choice (rates, steps) is said. CLV_EINVAL, naming the option. */
clv_status clv_train_check_notes(clv_train_totals *totals, const clv_trainer *trainer, const clv_train_args *args,
                                 const clv_train_data *data, const char *command, clv_error *err);

#endif
