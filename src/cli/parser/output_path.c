/* output_path.c - checks early that an output can be created, and is not also an input. */
#include "cli/parser/output_path.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleave/checkpoint.h"

/* Creates and removes a temporary file, to find what prevents an output. */
static clv_status try_file(const char *path, clv_error *err)
{
    clv_checkpoint_writer *writer;

    CLV_TRY(clv_checkpoint_create(&writer, path, err));
    clv_checkpoint_abandon(writer);
    return CLV_OK;
}

clv_status clv_output_path_check(const char *path, bool is_folder, clv_error *err)
{
    struct stat info;
    size_t length = strlen(path);

    if (!is_folder)
        return try_file(path, err);
    if (lstat(path, &info) == 0)
        return CLV_OK;
    while (length > 1 && path[length - 1] == '/')
        length--;
    char *name = strndup(path, length);
    clv_status status = name != NULL ? try_file(name, err) : clv_fail_memory(err, "a path", length);
    free(name);
    return status;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_within(const struct stat *file, const char *folder)
{
    DIR *dir = opendir(folder);
    bool found = false;

    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        found = fstatat(dirfd(dir), entry->d_name, &info, 0) == 0 && same(file, &info);
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

bool clv_is_same_file(const char *out, const char *in)
{
    struct stat to, from;

    if (stat(out, &to) != 0 || !S_ISREG(to.st_mode) || stat(in, &from) != 0)
        return false;
    return S_ISDIR(from.st_mode) ? is_within(&to, in) : same(&to, &from);
}
