/* train_folder.h - the folder of a run of train: a line of metrics for each step, readable at once, and at the end a
 * checkpoint.
 *
 * The lines are in metrics.unfinished.jsonl until the checkpoint is there; then that becomes metrics.jsonl. So a run
 * that was stopped is told from one that ended: the next one takes its folder, and keeps its lines as
 * metrics.unfinished-1.jsonl. A folder with anything else in it is never touched. The run holds a lock on the folder
 * (flock), and room on the disk for the checkpoint where the file system can set it aside: a full disk is found before
 * the training, not after it.
 */
#ifndef CLEAVE_CLI_TRAIN_FOLDER_H
#define CLEAVE_CLI_TRAIN_FOLDER_H

#include <stdint.h>
#include <stdio.h>

#include "cleave/status.h"

typedef struct clv_train_folder {
    const char *path;
    int lock;                   /* on the folder */
    int room;                   /* a file without a name, of the checkpoint's size; -1: none */
    char *unfinished, *metrics; /* paths */
    FILE *lines;                /* NULL: another process writes them */
    int64_t n;                  /* lines */
    int lost_errno;             /* why a line could not be written; 0: all were */
} clv_train_folder;

/* Makes the folder, or takes that of a run that was stopped. `bytes`: of the checkpoint.
 * @return CLV_EEXIST for a folder with other files or in use; CLV_EIO, also where `bytes` do not fit; CLV_ENOMEM */
clv_status clv_train_folder_open(clv_train_folder *out, const char *path, int64_t bytes, const char *command,
                                 clv_error *err);
/* Adds a line, which is on its way to the disk when this returns. A line that cannot be written fails
 * clv_train_folder_finish, not the training. */
void clv_train_folder_add(clv_train_folder *folder, const char *line);
/* Gives back the room: the checkpoint is written next. */
void clv_train_folder_give_room(clv_train_folder *folder);
/* With the checkpoint written. */
clv_status clv_train_folder_finish(clv_train_folder *folder, clv_error *err);
/* Ends the use of the folder, finished or not; one without any line is removed. */
void clv_train_folder_close(clv_train_folder *folder);

#endif
