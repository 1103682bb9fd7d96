/* same_file.c - whether an output path is also one of the inputs, through any links. */
#include "cli/parser/same_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

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
