/* checkpoint_folder.h - checkpoint folder of a run: step-N folders, "latest", retention, damaged checkpoints.
 *
 *   step-00000120/           files of trainer_state.h; under a temporary name until it is complete
 *   step-00000100.damaged/   a checkpoint that could not be read
 *   latest                   "step-00000120", for people and scripts; resuming takes the newest folder
 */
#pragma once

#include "io/files/file.h"
#include "train/trainer.h"

/* path: folder/step-00000120 */
clv_status clv_checkpoint_folder_path(char path[CLV_PATH_SIZE], const char *folder, int64_t step, clv_error *err);

typedef struct clv_checkpoint_list {
    int n;
    int64_t *steps; /* newest first */
} clv_checkpoint_list;
/* A missing folder has none. The caller frees list->steps, also after a failure. */
clv_status clv_checkpoint_folder_list(clv_checkpoint_list *list, const char *folder, clv_error *err);

bool clv_checkpoint_identity_matches(const clv_checkpoint_identity *identity, const char *path);
clv_checkpoint_identity clv_checkpoint_identity_of(const char *path, int64_t step);

/* Removes temporary folders of killed processes: "step-00000120.tmp-0". */
void clv_checkpoint_folder_remove_stale(const char *folder);
/* Fails with CLV_EEXIST if the folder has a newer checkpoint of another run, as a later resume would load that one. A
 * damaged one that could not be renamed is no reason: resuming skips it again. */
clv_status clv_checkpoint_folder_check_newest_is_ours(const clv_trainer *trainer, const char *folder, clv_error *err);
clv_status clv_checkpoint_folder_set_latest(const char *folder, int64_t step, clv_error *err);

/* Which checkpoints of a folder are kept: clv_trainer_checkpoint_options. */
typedef struct clv_checkpoint_retention {
    int newest;
    int64_t every;
} clv_checkpoint_retention;
/* Removes the others, except the one just saved. One that cannot be removed is tried again after the next checkpoint.
 * */
void clv_checkpoint_folder_prune(const char *folder, int64_t saved_step, const clv_checkpoint_retention *keep);
