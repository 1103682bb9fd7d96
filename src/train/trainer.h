/* trainer.h - what a clv_trainer is made of. */
#ifndef CLEAVE_TRAIN_TRAINER_H
#define CLEAVE_TRAIN_TRAINER_H

#include <sys/types.h>

#include "cleave/train.h"
#include "models/opened.h"

typedef struct clv_trainer_text {
    char *key, *text;
} clv_trainer_text;

/* A checkpoint's folder, whatever its path is called. */
typedef struct clv_trainer_place {
    bool is_set;
    int64_t step; /* steps done then */
    dev_t device;
    ino_t number;
} clv_trainer_place;

struct clv_trainer {
    const clv_model *model;
    int64_t batch, seq;
    uint8_t *all_tokens; /* [batch,seq] the mask of rows without padding; NULL: programs take none */
    clv_schedule schedule;
    clv_schedule_shape shape;
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
    int n_notes;
    clv_trainer_text *notes;
    clv_trainer_place saved;     /* its last checkpoint, or the one it went on from */
    clv_trainer_place passed;    /* the newest that it passed over and could not set aside */
    struct clv_saving *saving;   /* the checkpoint that is being written; NULL: none */
    void (*on_write)(void *arg); /* for tests: called by the thread that writes one, before it does; NULL: nothing */
    void *on_write_arg;
};

/* Whether all processes go on, each of which may have read or written for long: clv_job_agree, whose deadline is the
 * job's, not a step's. */
clv_status clv_trainer_agree(const clv_trainer *trainer, clv_status status, clv_error *err);
/* clv_trainer_most, in which a failure says what the processes were at. `what`: a constant. */
clv_status clv_trainer_find_most(const clv_trainer *trainer, const char *what, int64_t mine, int64_t *most,
                                 clv_error *err);

/* The inputs that a step and a loss alone have in common: ids, labels, and of a padded trainer the mask. *n: how many;
 * *counted: labels, as clv_model_config_check_labels has it. */
enum { CLV_TRAINER_INPUTS = 3 };
clv_status clv_trainer_inputs(clv_input_binding out[CLV_TRAINER_INPUTS], int *n, int64_t *counted,
                              const clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                              const uint8_t *mask, clv_error *err);
/* The shape of its graphs. */
clv_model_graph clv_trainer_graph(const clv_trainer *trainer);

/* ---- schedule.c ---- */

/* clv_schedule_check, and what goes with it in a trainer's options. */
clv_status clv_schedule_check_as(const clv_schedule *schedule, int64_t shape, int64_t decay, clv_error *err);

/* ---- nonfinite.c ---- */

clv_status clv_trainer_check_on_nan(int64_t on_nan, clv_error *err);
/* After a step on these inputs whose loss or norm is not finite: names what it began with, and skips the step, or is
 * CLV_EINVAL. */
clv_status clv_trainer_meet_nonfinite(clv_trainer *trainer, clv_train_step *did, const clv_input_binding *inputs, int n,
                                      clv_error *err);

/* ---- notes.c ---- */

void clv_trainer_clear_notes(clv_trainer *trainer);

/* ---- saving.c ---- */

/* Waits for the checkpoint that is being written, without a word to other processes: what the first one cannot end so
 * it gives up. */
void clv_trainer_leave_saving(clv_trainer *trainer);

#endif
