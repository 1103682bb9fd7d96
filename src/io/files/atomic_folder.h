/* atomic_folder.h - atomic folder: filled under a temporary name, fsynced, then renamed into place; copies of a
 * folder's files.
 */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

typedef struct clv_atomic_folder {
    char *path;      /* the final path */
    char *temporary; /* the temporary path (temporary.h) */
    int lock;        /* descriptor that holds the lock on it */
    bool replaces;   /* committing replaces what is at `path` */
} clv_atomic_folder;

/* Starts a folder. @return CLV_EINVAL if path exists; CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_atomic_folder_open(clv_atomic_folder *out, const char *path, clv_error *err);
/* Starts a folder that may replace an existing one, which stays until the new one is committed. */
clv_status clv_atomic_folder_open_replacing(clv_atomic_folder *out, const char *path, clv_error *err);
/* Renames the folder into place. Frees the object's memory, also on failure; then the temporary folder is removed. */
clv_status clv_atomic_folder_commit(clv_atomic_folder *folder, clv_error *err);
/* Removes the folder and its files. If err is not NULL, paths in its message are changed from the temporary folder to
 * the final one. */
void clv_atomic_folder_abort(clv_atomic_folder *folder, clv_error *err);

/* Returns whether the folder has an entry of this name. */
bool clv_folder_has(const char *folder, const char *name);

/* Copies the regular files of a folder to another, following links, without subfolders; except those for which `skip`
 * returns true. */
clv_status clv_folder_copy(const char *from, const char *to, bool (*skip)(const void *arg, const char *name),
                           const void *arg, clv_error *err);
