/* file.c - see file.h. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

clv_status clv_fail_errno(clv_error *err, const char *what, const char *path)
{
    int code = errno;
    char buffer[128];

    return clv_fail(err, code == ENOENT ? CLV_ENOTFOUND : CLV_EIO, "%s: cannot %s: %s", path, what,
                    strerror_r(code, buffer, sizeof buffer));
}

clv_status clv_file_open(int *out, uint64_t *size, const char *path, clv_error *err)
{
    struct stat info;
    /* O_NONBLOCK: opening a pipe must not wait for its writer. Regular files ignore it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return clv_fail_errno(err, "open", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return clv_fail(err, CLV_EIO, "%s: not a regular file", path);
    }
    *out = fd;
    *size = (uint64_t)info.st_size;
    return CLV_OK;
}

clv_status clv_file_read_at(int fd, void *out, size_t size, uint64_t offset, const char *path, clv_error *err)
{
    char *at = out;

    while (size > 0) {
        ssize_t n = pread(fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return clv_fail_errno(err, "read", path);
        if (n == 0)
            return clv_fail(err, CLV_EIO, "%s: ends at byte %llu, %zu bytes short (was it cut while open?)", path,
                            (unsigned long long)offset, size);
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return CLV_OK;
}

/* Where the copy that this thread is in goes on without the page; NULL: it is in none. What a handler can reach is global. */
static _Thread_local sigjmp_buf *volatile without_page;

clv_status clv_file_copy_mapped(void *out, const void *from, size_t size, const char *path, clv_error *err)
{
    sigjmp_buf here;

    if (sigsetjmp(here, 0) != 0) {
        without_page = NULL;
        return clv_fail(err, CLV_EIO, "%s: a mapped page is gone (was the file cut while open?)", path);
    }
    without_page = &here;
    memcpy(out, from, size);
    without_page = NULL;
    return CLV_OK;
}

void clv_file_lost_page(void)
{
    if (without_page != NULL)
        siglongjmp(*without_page, 1);
}

static clv_status read_all(char **out, int fd, uint64_t size, const char *path, clv_error *err)
{
    char *bytes = malloc((size_t)size + 1);
    clv_status status;

    if (bytes == NULL)
        return clv_fail_memory(err, path, (size_t)size + 1);
    status = clv_file_read_at(fd, bytes, (size_t)size, 0, path, err);
    if (status != CLV_OK) {
        free(bytes);
        return status;
    }
    bytes[size] = '\0';
    *out = bytes;
    return CLV_OK;
}

clv_status clv_file_read(char **out, size_t *size, const char *path, size_t limit, clv_error *err)
{
    uint64_t bytes = 0;
    int fd = -1;
    clv_status status;

    CLV_TRY(clv_file_open(&fd, &bytes, path, err));
    if (bytes > limit)
        status =
            clv_fail(err, CLV_ELIMIT, "%s: %llu bytes, at most %zu are read", path, (unsigned long long)bytes, limit);
    else
        status = read_all(out, fd, bytes, path, err);
    close(fd);
    if (status == CLV_OK)
        *size = (size_t)bytes;
    return status;
}

/* ---- writing ---- */

enum { ATTEMPTS = 1000 };

static void forget(clv_new_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->temporary);
    *file = (clv_new_file){.fd = -1};
}

clv_status clv_new_file_open(clv_new_file *out, const char *path, clv_error *err)
{
    size_t size = strlen(path) + 48;
    clv_new_file file = {.fd = -1, .path = strdup(path), .temporary = malloc(size)};
    clv_status status;

    if (file.path == NULL || file.temporary == NULL) {
        forget(&file);
        return clv_fail_memory(err, "a file name", size);
    }
    /* A process that was killed may have left a file of the same number. mkstemp would ignore the umask. */
    for (int i = 0; i < ATTEMPTS && file.fd < 0; i++) {
        snprintf(file.temporary, size, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        file.fd = open(file.temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file.fd < 0 && errno != EEXIST)
            break;
    }
    if (file.fd < 0) {
        status = clv_fail_errno(err, "create", file.temporary);
        forget(&file);
        return status;
    }
    *out = file;
    return CLV_OK;
}

clv_status clv_new_file_write(const clv_new_file *file, const void *bytes, size_t size, uint64_t offset, clv_error *err)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t n = pwrite(file->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return clv_fail_errno(err, "write", file->temporary);
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return CLV_OK;
}

clv_status clv_folder_flush(const char *folder, clv_error *err)
{
    clv_status status = CLV_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        status = clv_fail_errno(err, "flush", folder);
    if (fd >= 0)
        close(fd);
    return status;
}

char *clv_path_folder(const char *path)
{
    char *folder = strdup(path);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;

    if (folder == NULL)
        return NULL;
    if (slash == NULL) {
        free(folder);
        return strdup(".");
    }
    slash[slash == folder] = '\0';
    return folder;
}

static clv_status flush_folder_of(const char *path, clv_error *err)
{
    char *folder = clv_path_folder(path);
    clv_status status =
        folder != NULL ? clv_folder_flush(folder, err) : clv_fail_memory(err, "a file name", strlen(path));

    free(folder);
    return status;
}

static clv_status close_and_rename(clv_new_file *file, clv_error *err)
{
    if (fsync(file->fd) != 0)
        return clv_fail_errno(err, "flush", file->temporary);
    int closed = close(file->fd);
    file->fd = -1;
    if (closed != 0)
        return clv_fail_errno(err, "close", file->temporary);
    if (rename(file->temporary, file->path) != 0)
        return clv_fail_errno(err, "rename a temporary file to", file->path);
    return CLV_OK;
}

clv_status clv_new_file_commit(clv_new_file *file, clv_error *err)
{
    clv_status status = close_and_rename(file, err);

    if (status != CLV_OK) {
        clv_new_file_abandon(file);
        return status;
    }
    status = flush_folder_of(file->path, err);
    forget(file);
    return status;
}

void clv_new_file_abandon(clv_new_file *file)
{
    if (file->temporary != NULL)
        unlink(file->temporary);
    forget(file);
}

clv_status clv_file_write(const char *path, const void *bytes, size_t size, clv_error *err)
{
    clv_new_file file = {.fd = -1};
    clv_status status;

    CLV_TRY(clv_new_file_open(&file, path, err));
    status = clv_new_file_write(&file, bytes, size, 0, err);
    if (status != CLV_OK) {
        clv_new_file_abandon(&file);
        return status;
    }
    return clv_new_file_commit(&file, err);
}

bool clv_is_file_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

clv_status clv_file_check_inside(const char *folder, const char *path, clv_error *err)
{
    char *outer = realpath(folder, NULL), *file = realpath(path, NULL);
    size_t length = outer != NULL ? strlen(outer) : 0;
    bool inside = outer != NULL && file != NULL && strncmp(file, outer, length) == 0 &&
                  (file[length] == '/' || (length > 0 && outer[length - 1] == '/'));
    bool missing = file == NULL;

    free(outer);
    free(file);
    if (missing)
        return clv_fail_errno(err, "open", path);
    if (!inside)
        return clv_fail(err, CLV_EFORMAT, "%s: a link that leaves the folder", path);
    return CLV_OK;
}

char *clv_path_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);

    if (path != NULL)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}
