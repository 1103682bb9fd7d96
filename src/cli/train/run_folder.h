/* run_folder.h - the output folder of a training run: lock, reserved disk space, metrics.jsonl, checkpoints.
 *
 * Metrics are written to metrics.unfinished.jsonl, which becomes metrics.jsonl when the final checkpoint is written. So
 * a stopped run differs from a finished one: the next run reuses its folder, and keeps its metrics as
 * metrics.unfinished-1.jsonl. A resumed run continues the metrics up to its step. A folder with other files is never
 * touched. The run locks the folder (flock) and reserves disk space for the model, if the file system can: a full disk
 * is found before the training, not after it.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "cleave/status.h"

typedef struct clv_run_folder {
    const char *path;
    int lock;                   /* on the folder */
    int reserved_fd;            /* an unnamed file of the checkpoint's size, which reserves space; -1: none */
    char *unfinished, *metrics; /* paths */
    bool made;                  /* this run created the folder */
    FILE *lines;                /* metrics; NULL: another process writes them */
    int64_t n;                  /* lines */
    int write_errno;            /* of the first line that could not be written; 0: none */
} clv_run_folder;

/* Creates the folder, or reuses that of a stopped run; with `resume` that of any run with checkpoints. bytes: of the
 * model.
 * @return CLV_EEXIST for a folder with other files, with checkpoints, or in use; CLV_EIO, also where `bytes` do not
 *         fit; CLV_ENOMEM */
clv_status clv_run_folder_open(clv_run_folder *out, const char *path, int64_t bytes, bool resume, clv_error *err);
/* Opens the metrics after `steps` steps: keeps the lines of earlier steps of a resumed run; for a new run keeps the
 * file of an earlier run under another name. */
clv_status clv_run_folder_begin_metrics(clv_run_folder *folder, int64_t steps, const char *command, clv_error *err);
/* Waits until the files of the first process are visible in this one: all must share the folder. */
clv_status clv_run_folder_await_visible(const char *out, clv_error *err);
/* Appends a line and flushes it. A write error fails clv_run_folder_finish, not the training. */
void clv_run_folder_append_metrics(clv_run_folder *folder, const char *line);
/* Syncs the metrics to disk, before a checkpoint of their steps. */
void clv_run_folder_sync_metrics(clv_run_folder *folder);
/* Releases the reserved space, before the model is written. */
void clv_run_folder_release_space(clv_run_folder *folder);
/* Renames the metrics, after the final checkpoint is written. */
clv_status clv_run_folder_finish(clv_run_folder *folder, clv_error *err);
/* The path of the metrics, finished or not. */
const char *clv_run_folder_metrics_path(const clv_run_folder *folder);
/* Closes the folder, finished or not; removes it when it has no metrics. */
void clv_run_folder_close(clv_run_folder *folder);
