/* trainer.h - clv_trainer struct and functions that the files of train share. */
#pragma once

#include <sys/types.h>

#include "cleave/train.h"
#include "io/json/json.h"
#include "models/model.h"

/* Identity of a checkpoint folder, independent of its path: device and inode. */
typedef struct clv_checkpoint_identity {
    bool is_set;
    int64_t step; /* steps done when it was saved */
    dev_t device;
    ino_t inode;
} clv_checkpoint_identity;

struct clv_trainer {
    clv_model own;          /* the model, whose rules state the layers of stages */
    const clv_model *model; /* that one */
    int64_t batch, seq;
    uint8_t *all_tokens; /* [batch,seq] the mask of a batch without padding; NULL: the programs have no mask input */
    clv_lr_schedule schedule;
    uint64_t seed;
    double dropout, attention_dropout;
    clv_optimizer optimizer;
    clv_program *program;      /* of a step */
    clv_program *eval_program; /* forward and loss, no update; NULL until clv_trainer_loss is called */
    clv_session *session;
    int64_t step;    /* index of the next step */
    int64_t skipped; /* number of earlier steps that CLV_ON_NAN_SKIP skipped */
    clv_on_nan on_nan;
    char nonfinite[512];                          /* message about the last step; "": all values were finite */
    json_t *metadata;                             /* object of strings: clv_trainer_set_metadata */
    clv_checkpoint_identity last_checkpoint;      /* last one saved or resumed */
    clv_checkpoint_identity unreadable;           /* newest damaged one that could not be renamed */
    struct clv_checkpoint_save *save_in_progress; /* NULL: none */
    void (*on_checkpoint_write)(void *arg);       /* test hook: the writing thread calls it first; optional */
    void *on_checkpoint_write_arg;
};

/* Checks a batch and binds the inputs that both programs have: ids, labels and, with padding_mask, the mask. *n: number
 * of bindings; *n_labels: number of labels that are not -100, may be NULL. */
enum { CLV_TRAINER_INPUTS = 3 };
clv_status clv_trainer_bind_inputs(clv_input_binding out[CLV_TRAINER_INPUTS], int *n, int64_t *n_labels,
                                   const clv_trainer *trainer, const int32_t *ids, const int32_t *labels,
                                   const uint8_t *mask, clv_error *err);
/* Graph options of both programs, without dropout. */
clv_model_graph_options clv_trainer_graph_options(const clv_trainer *trainer);

/* nonfinite_step.c: after a step whose loss or gradient norm is not finite: finds the first op with such a value, then
 * fails with CLV_EINVAL or skips the step. */
clv_status clv_trainer_handle_nonfinite(clv_trainer *trainer, clv_train_step *result, const clv_input_binding *inputs,
                                        int n, clv_error *err);

/* checkpoint_save.c: waits for the writing thread without communication; a checkpoint that needs more of it is
 * discarded. */
void clv_trainer_abandon_checkpoint(clv_trainer *trainer);
