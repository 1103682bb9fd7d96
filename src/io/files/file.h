/* file.h - files: bounded whole-file reads, atomic replacement (temporary, fsync, rename), paths, and copies from a
 * mapping that end in an error where a page is gone, if the process has a SIGBUS handler for them.
 *
 * Replacing a file writes a temporary file in the same folder (temporary.h), fsyncs it, renames it over the old file
 * and fsyncs the folder: whatever happens in between, a reader finds the old file or the new one, never a mix. If the
 * path is a symbolic link, its target is replaced and the link stays. A pipe or a character device (/dev/null,
 * /dev/stdout) is written to when the content is complete. Anything else, such as a dangling link, is an error.
 */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Returns whether path is a dangling symbolic link, as the links of a hub's cache are when only they were copied. */
bool clv_is_dangling_link(const char *path);
/* Fails with CLV_ENOTFOUND and advice for a dangling link. */
clv_status clv_fail_dangling_link(const char *path, clv_error *err);

/* Opens a regular file for reading and returns its size. @return CLV_EFORMAT for a folder, a pipe and so on */
clv_status clv_file_open(int *fd, uint64_t *size, const char *path, clv_error *err);

/* Reads exactly `size` bytes at `offset`; CLV_EIO if the file ends before. Thread-safe. */
clv_status clv_file_read_at(int fd, void *out, size_t size, uint64_t offset, const char *path, clv_error *err);

/* Copies from a mapping (mmap) of the file. Reading a page that is gone (the file was truncated, or its disk fails)
 * raises SIGBUS, which becomes CLV_EIO if the program's signal handler calls clv_file_handle_sigbus, and else ends the
 * process. The library installs no signal handlers. */
clv_status clv_file_copy_mapped(void *out, const void *from, size_t size, const char *path, clv_error *err);
/* For a program's SIGBUS handler, installed with SA_NODEFER: aborts the clv_file_copy_mapped that this thread is in,
 * and then does not return. */
void clv_file_handle_sigbus(void);

/* Fails with CLV_EFORMAT if the file is of a known kind (file_kind.h), which is not what is `wanted`. CLV_OK otherwise,
 * also if it cannot be read. */
clv_status clv_file_refuse_known_kind(const char *path, const char *wanted, clv_error *err);

/* Reads a whole file of at most `limit` bytes into memory that the caller frees, and terminates it with a zero byte.
 * @return CLV_ELIMIT for a larger file; CLV_EFORMAT for a larger file of a known kind */
clv_status clv_file_read(char **out, size_t *size, const char *path, size_t limit, clv_error *err);

/* A file that is being written, to replace the one at `path`. */
typedef struct clv_atomic_file {
    int fd;          /* the temporary file */
    int pipe_fd;     /* the pipe or device that receives the content at the end; -1: the file is renamed to `path` */
    char *path;      /* the final path */
    char *temporary; /* the temporary path; NULL: the temporary file has no name */
    bool skip_fsync; /* no fsync: a crash of the machine may leave neither file */
    bool joined;     /* another process created it and will commit it */
} clv_atomic_file;

/* Starts a file. Waits for the reader of a pipe. @return CLV_EINVAL for something that is neither a file nor a pipe or
 * character device; CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_atomic_file_open(clv_atomic_file *out, const char *path, clv_error *err);
/* Checks that clv_atomic_file_open would succeed, without waiting. */
clv_status clv_atomic_file_check_writable(const char *path, clv_error *err);
/* Returns the number by which another process attaches to the file; -1: none can, since the file has no name. */
int clv_atomic_file_number_or_negative(const clv_atomic_file *file);
/* Opens the temporary file of this number that another process created for the same path, to write to it too. @return
 * CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
clv_status clv_atomic_file_attach(clv_atomic_file *out, const char *path, int number, clv_error *err);
/* Fsyncs and closes an attached file, which its creator then commits. Frees the object's memory. */
clv_status clv_atomic_file_detach(clv_atomic_file *file, clv_error *err);
/* Writes all bytes at `offset`. Thread-safe. Exceeding a file size limit (ulimit -f) is CLV_EIO if the program ignores
 * SIGXFSZ, which would else end it. */
clv_status clv_atomic_file_write(const clv_atomic_file *file, const void *bytes, size_t size, uint64_t offset,
                                 clv_error *err);
/* Renames the file into place, or copies it to the pipe. Frees the object's memory, also on failure; then the old file
 * is intact. */
clv_status clv_atomic_file_commit(clv_atomic_file *file, clv_error *err);
/* Removes the temporary file, unless it was joined, and frees the object's memory. */
void clv_atomic_file_abort(clv_atomic_file *file);

/* Replaces the content of a file. */
clv_status clv_file_write(const char *path, const void *bytes, size_t size, clv_error *err);
/* The same without fsync: safe against a crash of the process, not of the machine. */
clv_status clv_file_write_without_fsync(const char *path, const void *bytes, size_t size, clv_error *err);

/* Fsyncs a folder: a rename is durable only after that. */
clv_status clv_folder_fsync(const char *folder, clv_error *err);
/* Returns the folder part of a path, "." if it has none, in memory that the caller frees; NULL when out of memory. */
char *clv_path_dirname(const char *path);

/* Returns whether an untrusted name is a plain file name, that is, not a path. */
bool clv_is_plain_file_name(const char *name);
/* Fails with CLV_EFORMAT if path, after following links, is outside of the folder; CLV_ENOTFOUND, CLV_EIO if it does
 * not exist. */
clv_status clv_file_check_inside(const char *folder, const char *path, clv_error *err);

enum { CLV_PATH_SIZE = 4096 /* PATH_MAX: the system opens no longer path */ };
/* path: "folder/name". @return CLV_EIO when it is too long */
clv_status clv_path_join(char path[CLV_PATH_SIZE], const char *folder, const char *name, clv_error *err);
/* The same; returns whether it exists. */
bool clv_path_find(char path[CLV_PATH_SIZE], const char *folder, const char *name);
