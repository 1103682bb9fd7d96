/* temporary.h - temporary paths: locked "path.tmp-N" beside the target; removes stale ones of killed processes.
 *
 * Its maker holds a lock on it (flock) until it is in its place or gone. What has none was left by a process that was
 * killed, and is removed by the next one that makes a temporary of the same path. Where the file system has no locks
 * nothing is removed.
 */
#ifndef CLEAVE_IO_FILES_TEMPORARY_H
#define CLEAVE_IO_FILES_TEMPORARY_H

#include <stdbool.h>

#include "cleave/status.h"

/* Makes a file (open for reading and writing) or a folder under the first free name, locked until *fd is closed. *name
 * is the caller's to free. @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_temporary_open(char **name, int *fd, const char *path, bool folder, clv_error *err);
/* The number that its name ends with. */
int clv_temporary_id(const char *name);
/* Opens the file of that number, which another process has made and holds the lock of, for writing. *name is the
 * caller's to free. @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_temporary_join(char **name, int *fd, const char *path, int number, clv_error *err);
/* Removes what is under the name, if nobody makes it: as the next maker of the same path does. */
void clv_temporary_remove_stale(const char *name, bool folder);
/* Moves what a folder of this path holds to a temporary name and removes it, so that it is never seen in parts; one
 * that is not there is no failure. @return CLV_EIO, CLV_ENOMEM */
clv_status clv_temporary_discard_folder(const char *path, clv_error *err);
/* Removes it, a folder with all that is in it. */
void clv_temporary_remove(const char *name, bool folder);

#endif
