/* temporary.h - temporary paths: locked "path.tmp-N" beside the target; removes stale ones of killed processes.
 *
 * The creator holds a lock (flock) on the temporary path until it is renamed or removed. One without a lock is stale: a
 * process was killed. It is removed when a temporary path for the same target is next created. On file systems without
 * locks nothing is removed.
 */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Creates a file (open for reading and writing) or a folder under the first free name, locked until *fd is closed. The
 * caller frees *name. @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_temporary_open(char **name, int *fd, const char *path, bool folder, clv_error *err);
/* Returns N of a name "path.tmp-N" that clv_temporary_open gave; the name must be one. */
int clv_temporary_number(const char *name);
/* Opens temporary file `number` of path, which another process created and keeps locked, for writing. The caller
 * frees *name. @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_temporary_attach(char **name, int *fd, const char *path, int number, clv_error *err);
/* Removes a temporary path if it is stale. */
void clv_temporary_remove_stale(const char *name, bool folder);
/* Removes a folder atomically, by renaming it to a temporary name first. Succeeds if it does not exist. @return
 * CLV_EIO, CLV_ENOMEM */
clv_status clv_folder_remove_atomically(const char *path, clv_error *err);
/* Removes a file, or a folder with its content. */
void clv_temporary_remove(const char *name, bool folder);
