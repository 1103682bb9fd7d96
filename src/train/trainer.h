/* trainer.h - clv_trainer struct and functions that the files of train share. */
#ifndef CLEAVE_TRAIN_TRAINER_H
#define CLEAVE_TRAIN_TRAINER_H

#include <sys/types.h>

#include "cleave/train.h"
#include "models/model.h"

typedef struct clv_trainer_metadata {
    char *key, *text;
} clv_trainer_metadata;

/* A checkpoint's folder, whatever its path is called. */
typedef struct clv_checkpoint_identity {
    bool is_set;
    int64_t step; /* steps done then */
    dev_t device;
    ino_t number;
} clv_checkpoint_identity;

struct clv_trainer {
    const clv_model *model;
    int64_t batch, seq;
    uint8_t *all_tokens; /* [batch,seq] the mask of rows without padding; NULL: programs take none */
    clv_lr_schedule schedule;
    clv_lr_schedule_shape shape;
    int64_t decay_steps;
    uint64_t seed;
    double dropout, attention_dropout;
    clv_optimizer optimizer;
    clv_program *program;
    clv_program *loss; /* that updates nothing; NULL: nobody asked yet */
    clv_session *session;
    int64_t step;    /* the next */
    int64_t skipped; /* of those before, steps that updated nothing: their loss or gradients were not finite */
    clv_on_nan on_nan;
    char nonfinite[512]; /* of the last step, what was not finite first; "": all was */
    int n_metadata;
    clv_trainer_metadata *notes;
    clv_checkpoint_identity saved;      /* its last checkpoint, or the one it went on from */
    clv_checkpoint_identity passed;     /* the newest that it passed over and could not set aside */
    struct clv_checkpoint_save *saving; /* the checkpoint that is being written; NULL: none */
    void (*on_checkpoint_write)(
        void *arg); /* for tests: called by the thread that writes one, before it does; NULL: nothing */
    void *on_checkpoint_write_arg;
};

/* Whether all processes go on, each of which may have read or written for long: clv_job_agree, whose deadline is the
 * job's, not a step's. */
clv_status clv_trainer_agree_on_status(const clv_trainer *trainer, clv_status status, clv_error *err);
/* clv_trainer_max_over_processes, in which a failure says what the processes were at. `what`: a constant. */
clv_status clv_trainer_max_over_processes_for(const clv_trainer *trainer, const char *what, int64_t mine, int64_t *most,
                                              clv_error *err);

/* The inputs that a step and a loss alone have in common: ids, labels, and of a padded trainer the mask. *n: how many;
 * *counted: labels, as clv_model_config_check_labels has it. */
enum { CLV_TRAINER_INPUTS = 3 };
clv_status clv_trainer_bind_inputs(clv_input_binding out[CLV_TRAINER_INPUTS], int *n, int64_t *counted,
                                   const clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                   const uint8_t *mask, clv_error *err);
/* The shape of its graphs. */
clv_model_graph_options clv_trainer_graph_options(const clv_trainer *trainer);

/* ---- lr_schedule.c ---- */

/* clv_lr_schedule_check, and what goes with it in a trainer's options. */
clv_status clv_lr_schedule_check_shape(const clv_lr_schedule *schedule, int64_t shape, int64_t decay, clv_error *err);

/* ---- nonfinite_step.c ---- */

clv_status clv_trainer_check_on_nan(int64_t on_nan, clv_error *err);
/* After a step on these inputs whose loss or norm is not finite: names what it began with, and skips the step, or is
 * CLV_EINVAL. */
clv_status clv_trainer_handle_nonfinite(clv_trainer *trainer, clv_train_step *did, const clv_input_binding *inputs,
                                        int n, clv_error *err);

/* ---- checkpoint_metadata.c ---- */

void clv_trainer_clear_metadata(clv_trainer *trainer);

/* ---- checkpoint_save.c ---- */

/* Waits for the checkpoint that is being written, without a word to other processes: what the first one cannot end so
 * it gives up. */
void clv_trainer_abandon_checkpoint(clv_trainer *trainer);

#endif
