/* temporary.c - temporary paths: locked "path.tmp-N" beside the target; removes stale ones of killed processes. A
 * name is only unlinked or renamed by the process that holds the lock of the file.
 */
#include "io/files/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum {
    ATTEMPTS = 1000, /* most writers of one path at a time */
    SWEPT = 16,      /* names that are checked for stale files */
};

/* Whether the name still refers to the open file: it may have been renamed or removed meanwhile. */
static bool refers_to(const char *name, int fd)
{
    struct stat named, opened;

    return lstat(name, &named) == 0 && fstat(fd, &opened) == 0 && named.st_dev == opened.st_dev &&
           named.st_ino == opened.st_ino;
}

/* Removes only what this user owns. */
void clv_temporary_remove_stale(const char *name, bool folder)
{
    int fd = open(name, (folder ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;

    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && (folder || S_ISREG(info.st_mode)) &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && refers_to(name, fd))
        clv_temporary_remove(name, folder);
    close(fd);
}

/* Returns -1 with errno; EEXIST if the name is taken, or was removed as stale before it was locked. */
static int create_locked(const char *name, bool folder)
{
    int fd = folder ? mkdir(name, 0777) : 0;

    if (fd == 0)
        fd = folder ? open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                    : open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); /* mkstemp would ignore the umask */
    if (fd < 0)
        return -1;
    bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && refers_to(name, fd))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

clv_status clv_temporary_open(char **out, int *out_fd, const char *path, bool folder, clv_error *err)
{
    size_t size = strlen(path) + 24;
    char *name = malloc(size);
    int fd = -1, i = 0;

    if (name == NULL)
        return clv_fail_memory(err, "a file name", size);
    errno = EEXIST;
    for (; i < ATTEMPTS && fd < 0 && errno == EEXIST; i++) {
        snprintf(name, size, "%s.tmp-%d", path, i);
        clv_temporary_remove_stale(name, folder);
        fd = create_locked(name, folder);
    }
    if (fd < 0) {
        clv_status status = clv_fail_errno(err, "create", path); /* the temporary name is not for the user */
        free(name);
        return status;
    }
    for (int k = i; k < SWEPT; k++) {
        snprintf(name, size, "%s.tmp-%d", path, k);
        clv_temporary_remove_stale(name, folder);
    }
    snprintf(name, size, "%s.tmp-%d", path, i - 1);
    *out = name;
    *out_fd = fd;
    return CLV_OK;
}

int clv_temporary_number(const char *name)
{
    return atoi(strrchr(name, '-') + 1);
}

clv_status clv_temporary_attach(char **out, int *out_fd, const char *path, int number, clv_error *err)
{
    size_t size = strlen(path) + 24;
    char *name = malloc(size);

    if (name == NULL)
        return clv_fail_memory(err, "a file name", size);
    snprintf(name, size, "%s.tmp-%d", path, number);
    int fd = open(name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        clv_status status = clv_fail_errno(err, "open", name);
        free(name);
        return status;
    }
    *out = name;
    *out_fd = fd;
    return CLV_OK;
}

clv_status clv_folder_remove_atomically(const char *path, clv_error *err)
{
    char *name;
    int lock;
    struct stat info;

    if (lstat(path, &info) != 0)
        return CLV_OK;
    CLV_TRY(clv_temporary_open(&name, &lock, path, true, err)); /* an empty folder, which a rename replaces */
    clv_status status = rename(path, name) == 0 ? CLV_OK : clv_fail_errno(err, "move away", path);
    clv_temporary_remove(name, true);
    close(lock);
    free(name);
    return status;
}

/* Removes the content of a folder; links are not followed. */
static void remove_content(int folder)
{
    int copy = dup(folder);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            unlinkat(folder, entry->d_name, 0) == 0)
            continue;
        int within = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (within < 0)
            continue;
        remove_content(within);
        close(within);
        unlinkat(folder, entry->d_name, AT_REMOVEDIR);
    }
    if (dir != NULL)
        closedir(dir);
    else if (copy >= 0)
        close(copy);
}

void clv_temporary_remove(const char *name, bool folder)
{
    int fd = folder ? open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

    if (fd >= 0) {
        remove_content(fd);
        close(fd);
    }
    if (folder)
        rmdir(name);
    else
        unlink(name);
}
