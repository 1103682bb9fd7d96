/* atomic_folder.h - atomic folder: filled under a temporary name, fsynced, then renamed into place; copies of a
 * folder's files.
 */
#ifndef CLEAVE_IO_FILES_ATOMIC_FOLDER_H
#define CLEAVE_IO_FILES_ATOMIC_FOLDER_H

#include <stdbool.h>

#include "cleave/status.h"

typedef struct clv_atomic_folder {
    char *path;      /* where it will be */
    char *temporary; /* where it is: temporary.h */
    int lock;        /* on it */
    bool replaces;   /* what is at path goes when this comes */
} clv_atomic_folder;

/* @return CLV_EINVAL when something is at path already; CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_atomic_folder_open(clv_atomic_folder *out, const char *path, clv_error *err);
/* The same where something may be at path: it stays until the new folder is whole, which then takes its place. */
clv_status clv_atomic_folder_replace(clv_atomic_folder *out, const char *path, clv_error *err);
/* Puts the folder in its place; done with afterwards, also on failure: then nothing is left. */
clv_status clv_atomic_folder_commit(clv_atomic_folder *folder, clv_error *err);
/* Removes it and the files in it. err, unless NULL, is why: what it names in the folder, it names in its place. */
void clv_atomic_folder_abort(clv_atomic_folder *folder, clv_error *err);

/* Whether something of this name is in the folder. */
bool clv_folder_has(const char *folder, const char *name);

/* Copies the regular files of a folder, links followed, not what lies in folders within, to another one; all but those
 * that `skip` names. */
clv_status clv_folder_copy(const char *from, const char *to, bool (*skip)(const void *arg, const char *name),
                           const void *arg, clv_error *err);

#endif
