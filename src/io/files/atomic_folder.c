/* atomic_folder.c - atomic folder: filled under a temporary name, fsynced, then renamed into place; copies of a
 * folder's files.
 */
#include "io/files/atomic_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cleave/text.h"
#include "io/files/file.h"
#include "io/files/temporary.h"

enum { CHUNK_BYTES = 1 << 20 };

static void free_names(clv_atomic_folder *folder)
{
    if (folder->lock >= 0)
        close(folder->lock);
    free(folder->path);
    free(folder->temporary);
    *folder = (clv_atomic_folder){.lock = -1};
}

static clv_status open_temporary(clv_atomic_folder *out, const char *path, bool replaces, clv_error *err)
{
    size_t length = strlen(path);
    clv_atomic_folder folder = {.path = strdup(path), .lock = -1, .replaces = replaces};
    struct stat info;
    clv_status status;

    if (folder.path == NULL)
        return clv_fail_memory(err, "the name of a folder", length);
    while (length > 1 && folder.path[length - 1] == '/')
        folder.path[--length] = '\0';
    if (!replaces && lstat(folder.path, &info) == 0)
        status = clv_fail(err, CLV_EINVAL, "%s: exists already; valid: a folder that does not exist", path);
    else
        status = clv_temporary_open(&folder.temporary, &folder.lock, folder.path, true, err);
    if (status == CLV_OK)
        *out = folder;
    else
        free_names(&folder);
    return status;
}

clv_status clv_atomic_folder_open(clv_atomic_folder *out, const char *path, clv_error *err)
{
    return open_temporary(out, path, false, err);
}

clv_status clv_atomic_folder_open_replacing(clv_atomic_folder *out, const char *path, clv_error *err)
{
    return open_temporary(out, path, true, err);
}

/* Exchanges both atomically where the file system supports it; the old folder then has the temporary name. */
static clv_status move_to_place(const clv_atomic_folder *folder, clv_error *err)
{
    struct stat info;

    if (folder->replaces && lstat(folder->path, &info) == 0) {
        if (renameat2(AT_FDCWD, folder->temporary, AT_FDCWD, folder->path, RENAME_EXCHANGE) == 0) {
            clv_temporary_remove(folder->temporary, S_ISDIR(info.st_mode));
            return CLV_OK;
        }
        CLV_TRY(clv_folder_remove_atomically(folder->path, err));
    }
    if (rename(folder->temporary, folder->path) != 0)
        return clv_fail_errno(err, "rename a temporary folder to", folder->path);
    return CLV_OK;
}

static clv_status rename_into_place(const clv_atomic_folder *folder, clv_error *err)
{
    CLV_FREED char *parent = clv_path_dirname(folder->path);
    if (parent == NULL)
        return clv_fail_memory(err, "the name of a folder", strlen(folder->path));
    CLV_TRY(clv_folder_fsync(folder->temporary, err));

    CLV_TRY(move_to_place(folder, err));
    return clv_folder_fsync(parent, err);
}

clv_status clv_atomic_folder_commit(clv_atomic_folder *folder, clv_error *err)
{
    clv_status status = rename_into_place(folder, err);

    if (status == CLV_OK)
        free_names(folder);
    else
        clv_atomic_folder_abort(folder, err);
    return status;
}

/* The temporary path begins with the final one. */
static void rewrite_paths_in_error(const clv_atomic_folder *folder, clv_error *err)
{
    char *temporary = clv_printable_copy(folder->temporary), *path = clv_printable_copy(folder->path);
    char *at = err != NULL && temporary != NULL && path != NULL ? strstr(err->message, temporary) : NULL;

    if (at != NULL)
        memmove(at + strlen(path), at + strlen(temporary), strlen(at + strlen(temporary)) + 1);
    free(temporary);
    free(path);
}

void clv_atomic_folder_abort(clv_atomic_folder *folder, clv_error *err)
{
    if (folder->temporary != NULL) {
        rewrite_paths_in_error(folder, err);
        clv_temporary_remove(folder->temporary, true);
    }
    free_names(folder);
}

/* ---- copying ---- */

static clv_status copy_bytes(const clv_atomic_file *to, int from, uint64_t size, const char *path, clv_error *err)
{
    CLV_FREED char *buffer = malloc(CHUNK_BYTES);
    if (buffer == NULL)
        return clv_fail_memory(err, "a copy", CHUNK_BYTES);

    for (uint64_t at = 0; at < size; at += CHUNK_BYTES) {
        size_t n = size - at < CHUNK_BYTES ? (size_t)(size - at) : CHUNK_BYTES;
        CLV_TRY(clv_file_read_at(from, buffer, n, at, path, err));
        CLV_TRY(clv_atomic_file_write(to, buffer, n, at, err));
    }
    return CLV_OK;
}

static clv_status copy_file(const char *from, const char *to, clv_error *err)
{
    clv_atomic_file file = {.fd = -1};
    uint64_t size = 0;
    int fd = -1;

    CLV_TRY(clv_file_open(&fd, &size, from, err));
    clv_status status = clv_atomic_file_open(&file, to, err);
    if (status == CLV_OK) {
        status = copy_bytes(&file, fd, size, from, err);
        if (status == CLV_OK)
            status = clv_atomic_file_commit(&file, err);
        else
            clv_atomic_file_abort(&file);
    }
    close(fd);
    return status;
}

static clv_status copy_named(const char *from, const char *to, const char *name, clv_error *err)
{
    char source[CLV_PATH_SIZE], target[CLV_PATH_SIZE];
    struct stat info;

    CLV_TRY(clv_path_join(source, from, name, err));
    CLV_TRY(clv_path_join(target, to, name, err));
    return stat(source, &info) == 0 && S_ISREG(info.st_mode) ? copy_file(source, target, err) : CLV_OK;
}

clv_status clv_folder_copy(const char *from, const char *to, bool (*skip)(const void *arg, const char *name),
                           const void *arg, clv_error *err)
{
    clv_status status = CLV_OK;
    DIR *dir = opendir(from);

    if (dir == NULL)
        return clv_fail_errno(err, "list", from);
    if (!clv_folder_has(to, ".")) /* even if it has nothing to copy */
        status = clv_fail_errno(err, "copy files to", to);
    for (struct dirent *entry; status == CLV_OK && (entry = readdir(dir)) != NULL;)
        if (!skip(arg, entry->d_name))
            status = copy_named(from, to, entry->d_name, err);
    closedir(dir);
    return status;
}

bool clv_folder_has(const char *folder, const char *name)
{
    char path[CLV_PATH_SIZE];
    return clv_path_find(path, folder, name);
}
