/* trainer.h - what a clv_trainer is made of, and its state in a folder. */
#ifndef CLEAVE_TRAIN_TRAINER_H
#define CLEAVE_TRAIN_TRAINER_H

#include "cleave/train.h"
#include "models/opened.h"

typedef struct clv_trainer_text {
    char *key, *text;
} clv_trainer_text;

struct clv_trainer {
    const clv_model *model;
    int64_t batch, seq;
    clv_schedule schedule;
    uint64_t seed;
    clv_program *program;
    clv_session *session;
    int64_t step; /* the next */
    int n_notes;
    clv_trainer_text *notes;
    char *saved_in; /* the folder of its last checkpoint, or of the one it went on from; NULL: there was none */
    int64_t saved;  /* steps done then */
};

/* Whether all processes go on, each of which may have read or written for long: clv_job_agree, whose deadline is the
 * job's, not a step's. */
clv_status clv_trainer_agree(const clv_trainer *trainer, clv_status status, clv_error *err);

/* ---- notes.c ---- */

void clv_trainer_clear_notes(clv_trainer *trainer);

/* ---- state.c: a checkpoint's folder, by all processes ---- */

extern const char clv_trainer_manifest_name[]; /* "trainer.json", written last */

/* Fills a folder that is there and empty. All processes call it; each returns its own failure, or that of another. */
clv_status clv_trainer_write_state(const clv_trainer *trainer, const char *folder, clv_error *err);
/* Reads it into the ranks of this process, which calls it alone: nothing is known of the others. Damage is what
 * clv_trainer_is_damage says of the status. */
clv_status clv_trainer_read_state(clv_trainer *trainer, const char *folder, clv_error *err);
bool clv_trainer_is_damage(clv_status status);

#endif
