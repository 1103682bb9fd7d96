/* checkpoint_folder.h - checkpoint folder of a run: step-N folders, "latest", retention, damaged checkpoints.
 *
 *   step-00000120/           trainer_state.h has what is in it; under a temporary name until it is whole
 *   step-00000100.damaged/   one that could not be read
 *   latest                   "step-00000120": for people and scripts; the newest folder is what counts
 */
#ifndef CLEAVE_TRAIN_CHECKPOINT_FOLDER_H
#define CLEAVE_TRAIN_CHECKPOINT_FOLDER_H

#include "train/trainer.h"

/* The caller's to free; NULL: no memory. */
char *clv_checkpoint_folder_path(const char *folder, int64_t step);

typedef struct clv_checkpoint_list {
    int n;
    int64_t *steps; /* newest first */
} clv_checkpoint_list;
/* A folder that is not there has none. list->steps is the caller's to free, also after a failure. */
clv_status clv_checkpoint_folder_list(clv_checkpoint_list *list, const char *folder, clv_error *err);

bool clv_checkpoint_identity_matches(const clv_checkpoint_identity *place, const char *path);
clv_checkpoint_identity clv_checkpoint_identity_of(const char *path, int64_t step);

/* Removes what processes that were killed have left: "step-00000120.tmp-0". */
void clv_checkpoint_folder_remove_stale(const char *folder);
/* CLV_EEXIST where a newer one than the trainer would save is another run's: what goes on from here would find that,
 * not what is saved now. What could not be read, nor be set aside, will be passed over again. */
clv_status clv_checkpoint_folder_check_newest(const clv_trainer *trainer, const char *folder, clv_error *err);
clv_status clv_checkpoint_folder_set_latest(const char *folder, int64_t step, clv_error *err);

/* How many of a folder's stay: see clv_trainer_checkpoint_options. */
typedef struct clv_checkpoint_retention {
    int newest;
    int64_t every;
} clv_checkpoint_retention;
/* Removes all that do not stay, but for the one that was saved. What cannot be removed is tried again after the next:
 * this one is there. */
void clv_checkpoint_folder_prune(const char *folder, int64_t saved, const clv_checkpoint_retention *keep);

#endif
