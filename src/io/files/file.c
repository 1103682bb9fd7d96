/* file.c - files: bounded whole-file reads, atomic replacement (temporary, fsync, rename), paths, and copies from a
 * mapping that end in an error where a page is gone, if the process has a SIGBUS handler for them.
 */
#include "io/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file_kind.h"
#include "io/files/temporary.h"

bool clv_is_dangling_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) != 0 && errno == ENOENT;
}

clv_status clv_fail_dangling_link(const char *path, clv_error *err)
{
    return clv_fail(err, CLV_ENOTFOUND,
                    "%s: a link to a file that is not there; copy files as what they link to (cp -L)", path);
}

clv_status clv_file_open(int *out, uint64_t *size, const char *path, clv_error *err)
{
    struct stat info;
    /* O_NONBLOCK: opening a pipe must not wait for its writer. Regular files ignore it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && clv_is_dangling_link(path))
        return clv_fail_dangling_link(path, err);
    if (fd < 0)
        return clv_fail_errno(err, "open", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return clv_fail(err, CLV_EFORMAT, "%s: not a regular file", path);
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

/* The jump target of the clv_file_copy_mapped that this thread is in; NULL: none. Global because the signal handler
 * needs it. */
static _Thread_local sigjmp_buf *volatile sigbus_jump;

clv_status clv_file_copy_mapped(void *out, const void *from, size_t size, const char *path, clv_error *err)
{
    sigjmp_buf jump;

    if (sigsetjmp(jump, 0) != 0) {
        sigbus_jump = NULL;
        return clv_fail(err, CLV_EIO, "%s: a mapped page is gone (was the file cut while open?)", path);
    }
    sigbus_jump = &jump;
    memcpy(out, from, size);
    sigbus_jump = NULL;
    return CLV_OK;
}

void clv_file_handle_sigbus(void)
{
    if (sigbus_jump != NULL)
        siglongjmp(*sigbus_jump, 1);
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

clv_status clv_file_refuse_known_kind(const char *path, const char *wanted, clv_error *err)
{
    char bytes[CLV_FILE_KIND_BYTES];
    uint64_t size = 0;
    int fd = -1;

    if (clv_file_open(&fd, &size, path, NULL) != CLV_OK)
        return CLV_OK;
    size_t n = size < sizeof bytes ? (size_t)size : sizeof bytes;
    clv_status status = clv_file_read_at(fd, bytes, n, 0, path, NULL);
    close(fd);
    return status == CLV_OK ? clv_file_kind_refuse(bytes, n, wanted, path, err) : CLV_OK;
}

/* Fails for a file that is too large to read. */
static clv_status too_large(const char *path, uint64_t bytes, size_t limit, clv_error *err)
{
    char wanted[64];

    snprintf(wanted, sizeof wanted, "a file of at most %zu bytes", limit);
    CLV_TRY(clv_file_refuse_known_kind(path, wanted, err));
    return clv_fail(err, CLV_ELIMIT, "%s: %llu bytes, at most %zu are read", path, (unsigned long long)bytes, limit);
}

clv_status clv_file_read(char **out, size_t *size, const char *path, size_t limit, clv_error *err)
{
    uint64_t bytes = 0;
    int fd = -1;
    clv_status status;

    CLV_TRY(clv_file_open(&fd, &bytes, path, err));
    if (bytes > limit)
        status = too_large(path, bytes, limit, err);
    else
        status = read_all(out, fd, bytes, path, err);
    close(fd);
    if (status == CLV_OK)
        *size = (size_t)bytes;
    return status;
}

/* ---- writing ---- */

enum { PIPE_CHUNK_BYTES = 1 << 20 };

static void free_names(clv_atomic_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->pipe_fd >= 0)
        close(file->pipe_fd);
    free(file->path);
    free(file->temporary);
    *file = (clv_atomic_file){.fd = -1, .pipe_fd = -1};
}

/* Content is written in any order, which a pipe cannot take, so it goes to an unnamed temporary file first. */
static clv_status open_pipe_or_device(clv_atomic_file *file, const char *path, clv_error *err)
{
    FILE *unnamed = tmpfile();

    file->fd = unnamed != NULL ? fcntl(fileno(unnamed), F_DUPFD_CLOEXEC, 0) : -1;
    if (unnamed != NULL)
        fclose(unnamed);
    if (file->fd < 0)
        return clv_fail_errno(err, "make a temporary file for", path);
    file->path = strdup(path);
    if (file->path == NULL)
        return clv_fail_memory(err, "a file name", strlen(path));
    file->pipe_fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return file->pipe_fd >= 0 ? CLV_OK : clv_fail_errno(err, "write to", path);
}

/* The new file gets the permissions of the old one. */
static clv_status open_temporary(clv_atomic_file *file, const struct stat *old, clv_error *err)
{
    CLV_TRY(clv_temporary_open(&file->temporary, &file->fd, file->path, false, err));
    if (old != NULL && fchmod(file->fd, old->st_mode & 07777) != 0)
        return clv_fail_errno(err, "give its permissions to", file->path);
    return CLV_OK;
}

static clv_status open_new(clv_atomic_file *file, const char *path, clv_error *err)
{
    struct stat info;
    bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode), exists = stat(path, &info) == 0;

    if (is_link && !exists)
        return clv_fail(err, CLV_EINVAL, "%s: a dangling link; remove it, or name a file", path);
    if (exists && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)))
        return open_pipe_or_device(file, path, err);
    if (exists && !S_ISREG(info.st_mode))
        return clv_fail(err, CLV_EINVAL, "%s: %s; valid: a file, new or to be replaced, a pipe, a character device",
                        path, S_ISDIR(info.st_mode) ? "a folder" : "neither a file nor a pipe");
    file->path = is_link ? realpath(path, NULL) : strdup(path);
    if (file->path == NULL)
        return is_link ? clv_fail_errno(err, "follow", path) : clv_fail_memory(err, "a file name", strlen(path));
    return open_temporary(file, exists ? &info : NULL, err);
}

clv_status clv_atomic_file_open(clv_atomic_file *out, const char *path, clv_error *err)
{
    clv_atomic_file file = {.fd = -1, .pipe_fd = -1};
    clv_status status = open_new(&file, path, err);

    if (status == CLV_OK)
        *out = file;
    else
        clv_atomic_file_abort(&file);
    return status;
}

clv_status clv_atomic_file_check_writable(const char *path, clv_error *err)
{
    clv_atomic_file file;
    struct stat info;

    if (stat(path, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)))
        return CLV_OK;
    CLV_TRY(clv_atomic_file_open(&file, path, err));
    clv_atomic_file_abort(&file);
    return CLV_OK;
}

int clv_atomic_file_number_or_negative(const clv_atomic_file *file)
{
    return file->temporary != NULL ? clv_temporary_number(file->temporary) : -1;
}

clv_status clv_atomic_file_attach(clv_atomic_file *out, const char *path, int number, clv_error *err)
{
    clv_atomic_file file = {.fd = -1, .pipe_fd = -1, .joined = true};
    struct stat info;
    bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);

    file.path = is_link ? realpath(path, NULL) : strdup(path);
    if (file.path == NULL)
        return is_link ? clv_fail_errno(err, "follow", path) : clv_fail_memory(err, "a file name", strlen(path));
    clv_status status = clv_temporary_attach(&file.temporary, &file.fd, file.path, number, err);
    if (status == CLV_OK)
        *out = file;
    else
        free_names(&file);
    return status;
}

clv_status clv_atomic_file_detach(clv_atomic_file *file, clv_error *err)
{
    clv_status status = fsync(file->fd) == 0 ? CLV_OK : clv_fail_errno(err, "flush", file->temporary);
    int closed = close(file->fd);

    file->fd = -1;
    if (status == CLV_OK && closed != 0)
        status = clv_fail_errno(err, "close", file->temporary);
    free_names(file);
    return status;
}

clv_status clv_atomic_file_write(const clv_atomic_file *file, const void *bytes, size_t size, uint64_t offset,
                                 clv_error *err)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t n = pwrite(file->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return clv_fail_errno(err, file->temporary != NULL ? "write" : "write a temporary file for", file->path);
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return CLV_OK;
}

clv_status clv_folder_fsync(const char *folder, clv_error *err)
{
    clv_status status = CLV_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        status = clv_fail_errno(err, "flush", folder);
    if (fd >= 0)
        close(fd);
    return status;
}

char *clv_path_dirname(const char *path)
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

static clv_status fsync_parent(const char *path, clv_error *err)
{
    CLV_FREED char *folder = clv_path_dirname(path);
    if (folder == NULL)
        return clv_fail_memory(err, "a file name", strlen(path));
    return clv_folder_fsync(folder, err);
}

/* A duplicate descriptor keeps the lock on the temporary file until it is renamed, so that the result of close is known
 * before. */
static clv_status close_and_rename(clv_atomic_file *file, clv_error *err)
{
    if (!file->skip_fsync && fsync(file->fd) != 0)
        return clv_fail_errno(err, "flush", file->path);
    int locked = fcntl(file->fd, F_DUPFD_CLOEXEC, 0), closed = locked >= 0 ? close(file->fd) : -1;
    if (locked >= 0)
        file->fd = locked;
    if (closed != 0)
        return clv_fail_errno(err, "close", file->path);
    if (rename(file->temporary, file->path) != 0)
        return clv_fail_errno(err, "rename a temporary file to", file->path);
    return CLV_OK;
}

static clv_status rename_into_place(clv_atomic_file *file, clv_error *err)
{
    clv_status status = close_and_rename(file, err);

    if (status != CLV_OK) {
        clv_atomic_file_abort(file);
        return status;
    }
    if (!file->skip_fsync)
        status = fsync_parent(file->path, err);
    free_names(file);
    return status;
}

static clv_status write_all(int fd, const char *bytes, size_t size, const char *path, clv_error *err)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return clv_fail_errno(err, "write to", path);
        bytes += n;
        size -= (size_t)n;
    }
    return CLV_OK;
}

static clv_status copy_to_fd(const clv_atomic_file *file, char *buffer, clv_error *err)
{
    struct stat info;

    if (fstat(file->fd, &info) != 0)
        return clv_fail_errno(err, "read a temporary file for", file->path);
    for (uint64_t at = 0, size = (uint64_t)info.st_size; at < size; at += PIPE_CHUNK_BYTES) {
        size_t n = size - at < PIPE_CHUNK_BYTES ? (size_t)(size - at) : PIPE_CHUNK_BYTES;
        CLV_TRY(clv_file_read_at(file->fd, buffer, n, at, "a temporary file", err));
        CLV_TRY(write_all(file->pipe_fd, buffer, n, file->path, err));
    }
    return CLV_OK;
}

static clv_status write_to_pipe(clv_atomic_file *file, clv_error *err)
{
    char *buffer = malloc(PIPE_CHUNK_BYTES);
    clv_status status =
        buffer != NULL ? copy_to_fd(file, buffer, err) : clv_fail_memory(err, "a pipe's buffer", PIPE_CHUNK_BYTES);
    int closed = close(file->pipe_fd);

    file->pipe_fd = -1;
    if (status == CLV_OK && closed != 0)
        status = clv_fail_errno(err, "close", file->path);
    free(buffer);
    free_names(file);
    return status;
}

clv_status clv_atomic_file_commit(clv_atomic_file *file, clv_error *err)
{
    return file->pipe_fd >= 0 ? write_to_pipe(file, err) : rename_into_place(file, err);
}

void clv_atomic_file_abort(clv_atomic_file *file)
{
    if (file->temporary != NULL && !file->joined)
        clv_temporary_remove(file->temporary, false);
    free_names(file);
}

static clv_status write_whole(const char *path, const void *bytes, size_t size, bool skip_fsync, clv_error *err)
{
    clv_atomic_file file = {.fd = -1};
    clv_status status;

    CLV_TRY(clv_atomic_file_open(&file, path, err));
    file.skip_fsync = skip_fsync;
    status = clv_atomic_file_write(&file, bytes, size, 0, err);
    if (status != CLV_OK) {
        clv_atomic_file_abort(&file);
        return status;
    }
    return clv_atomic_file_commit(&file, err);
}

clv_status clv_file_write(const char *path, const void *bytes, size_t size, clv_error *err)
{
    return write_whole(path, bytes, size, false, err);
}

clv_status clv_file_write_without_fsync(const char *path, const void *bytes, size_t size, clv_error *err)
{
    return write_whole(path, bytes, size, true, err);
}

bool clv_is_plain_file_name(const char *name)
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

clv_status clv_path_join(char path[CLV_PATH_SIZE], const char *folder, const char *name, clv_error *err)
{
    if (snprintf(path, CLV_PATH_SIZE, "%s/%s", folder, name) < CLV_PATH_SIZE)
        return CLV_OK;
    return clv_fail(err, CLV_EIO, "%.128s.../%.128s: %s", folder, name, strerror(ENAMETOOLONG));
}

bool clv_path_find(char path[CLV_PATH_SIZE], const char *folder, const char *name)
{
    struct stat info; /* a dangling link is there: reading it says so */
    return clv_path_join(path, folder, name, NULL) == CLV_OK && lstat(path, &info) == 0;
}
