/* run_folder.h - the output folder of a training run: lock, reserved disk space, metrics.jsonl, checkpoints.
 *
 * The lines are in metrics.unfinished.jsonl until the checkpoint is there; then that becomes metrics.jsonl. So a run
 * that was stopped is told from one that ended: the next one takes its folder, and keeps its lines as
 * metrics.unfinished-1.jsonl. A run that goes on from a checkpoint goes on with its lines, too, up to its step. A
 * folder with anything else in it is never touched. The run holds a lock on the folder (flock), and room on the disk
 * for the model where the file system can set it aside: a full disk is found before the training, not after it.
 */
#ifndef CLEAVE_CLI_TRAIN_RUN_FOLDER_H
#define CLEAVE_CLI_TRAIN_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cleave/status.h"

typedef struct clv_run_folder {
    const char *path;
    int lock;                   /* on the folder */
    int room;                   /* a file without a name, of the checkpoint's size; -1: none */
    char *unfinished, *metrics; /* paths */
    bool made;                  /* the folder, by this run */
    FILE *lines;                /* NULL: another process writes them */
    int64_t n;                  /* lines */
    int write_errno;            /* why a line could not be written; 0: all were */
} clv_run_folder;

/* Makes the folder, or takes that of a run that was stopped; with `resume` that of any run that has checkpoints.
 * `bytes`: of the model.
 * @return CLV_EEXIST for a folder with other files, with checkpoints, or in use; CLV_EIO, also where `bytes` do not
 *         fit; CLV_ENOMEM */
clv_status clv_run_folder_open(clv_run_folder *out, const char *path, int64_t bytes, bool resume, clv_error *err);
/* Begins its lines after so many steps: those of steps before stay, where there are any; of a run that begins anew
 * none do, and the lines of a run before it are kept under another name. */
clv_status clv_run_folder_begin_metrics(clv_run_folder *folder, int64_t steps, const char *command, clv_error *err);
/* That the run which another process has begun in the folder is seen here, too: what all save goes to one place. */
clv_status clv_run_folder_await_visible(const char *out, clv_error *err);
/* Adds a line, which is on its way to the disk when this returns. A line that cannot be written fails
 * clv_run_folder_finish, not the training. */
void clv_run_folder_append_metrics(clv_run_folder *folder, const char *line);
/* Puts lines on the disk, ahead of a checkpoint of their steps. */
void clv_run_folder_sync_metrics(clv_run_folder *folder);
/* Gives back the room: the model is written next. */
void clv_run_folder_release_space(clv_run_folder *folder);
/* With the checkpoint written. */
clv_status clv_run_folder_finish(clv_run_folder *folder, clv_error *err);
/* Where its lines are, finished or not. */
const char *clv_run_folder_metrics_path(const clv_run_folder *folder);
/* Ends the use of the folder, finished or not; one without any line is removed. */
void clv_run_folder_close(clv_run_folder *folder);

#endif
