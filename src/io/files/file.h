/* file.h - files: bounded whole-file reads, atomic replacement (temporary, fsync, rename), SIGBUS-safe mmap copies,
 * paths.
 *
 * A file is replaced by writing a temporary one beside it (temporary.h), flushing it to the disk, renaming it over the
 * old one and flushing the folder: whatever happens in between, a reader finds the old file or the new one, never a
 * mix. Where a link stands, the file that it leads to is replaced, and the link stays. What is no file is not replaced:
 * a pipe or a character device (/dev/null, /dev/stdout) is written to, once all is known; anything else, and a link
 * that leads nowhere, is refused.
 */
#ifndef CLEAVE_IO_FILES_FILE_H
#define CLEAVE_IO_FILES_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleave/status.h"

/* Whether path is a link to what is not there, as the links of a hub's cache are once they were copied alone. */
bool clv_is_dangling_link(const char *path);
/* CLV_ENOTFOUND with what to do, for such a link. */
clv_status clv_fail_dangling_link(const char *path, clv_error *err);

/* Opens a regular file for reading and tells its size; anything else (a folder, a pipe) is CLV_EFORMAT. */
clv_status clv_file_open(int *fd, uint64_t *size, const char *path, clv_error *err);

/* Reads exactly `size` bytes at `offset`; CLV_EIO when the file ends before. Safe from several threads. */
clv_status clv_file_read_at(int fd, void *out, size_t size, uint64_t offset, const char *path, clv_error *err);

/* Copies from a mapping of the file. A page that is gone (the file was cut meanwhile, its disk fails) raises SIGBUS: it
 * is CLV_EIO where the program's handler calls clv_file_on_sigbus, else the end of the process. The library owns no
 * signals. */
clv_status clv_file_copy_mapped(void *out, const void *from, size_t size, const char *path, clv_error *err);
/* For a program's handler of SIGBUS, set with SA_NODEFER: ends the copy from a mapping that this thread is in, and does
 * not return then. */
void clv_file_on_sigbus(void);

/* CLV_EFORMAT for a file of a known kind (file_kind.h), in the place of what is wanted; else, and where it cannot be
 * read, CLV_OK. */
clv_status clv_file_check_kind(const char *path, const char *wanted, clv_error *err);

/* Reads a whole file of at most `limit` bytes into memory that the caller frees; a zero byte follows the content.
 * CLV_ELIMIT when it is larger, CLV_EFORMAT when it is larger and of a known kind. */
clv_status clv_file_read(char **out, size_t *size, const char *path, size_t limit, clv_error *err);

/* A file in the making. */
typedef struct clv_atomic_file {
    int fd;
    int through;     /* the pipe or device that is written to at the end; -1: the file is put in its place */
    char *path;      /* where it will be */
    char *temporary; /* where it is; NULL: it has no name */
    bool skip_fsync; /* it is not flushed: a crash of the machine may leave neither file */
    bool joined;     /* another process has made it, and will put it in its place */
} clv_atomic_file;

/* @return CLV_EINVAL for what is neither a file nor can be written through; CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM. Waits
 * for a pipe's reader. */
clv_status clv_atomic_file_open(clv_atomic_file *out, const char *path, clv_error *err);
/* Whether a file could be opened so, without waiting. */
clv_status clv_atomic_file_check(const char *path, clv_error *err);
/* What another process joins the file by; -1: none can, for it has no name. */
int clv_atomic_file_id(const clv_atomic_file *file);
/* Opens a file that another process makes of the same path, to write to it too. @return CLV_EIO, CLV_ENOTFOUND,
 * CLV_ENOMEM */
clv_status clv_atomic_file_join(clv_atomic_file *out, const char *path, int number, clv_error *err);
/* Flushes what was written to a file that was joined, which is its maker's to commit then. The object is done with. */
clv_status clv_atomic_file_detach(clv_atomic_file *file, clv_error *err);
/* Writes all bytes at `offset`. Safe from several threads. A limit on the size of files (ulimit -f) is CLV_EIO where
 * the program ignores SIGXFSZ, which would else end it. */
clv_status clv_atomic_file_write(const clv_atomic_file *file, const void *bytes, size_t size, uint64_t offset,
                                 clv_error *err);
/* Puts the file in its place. The object is done with afterwards, also on failure: then the old file is whole. */
clv_status clv_atomic_file_commit(clv_atomic_file *file, clv_error *err);
/* Removes the temporary file, unless it was joined. */
void clv_atomic_file_abort(clv_atomic_file *file);

/* Replaces a file's content at once. */
clv_status clv_file_write(const char *path, const void *bytes, size_t size, clv_error *err);
/* The same without waiting for the disk: of use only as long as the machine runs on. */
clv_status clv_file_write_without_fsync(const char *path, const void *bytes, size_t size, clv_error *err);

/* Flushes a folder's entries: a rename is on the disk only after its folder is. */
clv_status clv_folder_fsync(const char *folder, clv_error *err);
/* The folder that holds path, "." where it names none; the caller frees it; NULL when out of memory. */
char *clv_path_dirname(const char *path);

/* Whether a name from a file that is not trusted names something directly within a folder. */
bool clv_is_plain_file_name(const char *name);
/* CLV_EFORMAT when path, with its links followed, lies outside of the folder; CLV_ENOTFOUND, CLV_EIO when it is not
 * there. */
clv_status clv_file_check_inside(const char *folder, const char *path, clv_error *err);

/* "folder/name" in memory that the caller frees; NULL when out of memory. */
char *clv_path_join(const char *folder, const char *name);
/* The same where there is something of that name; else NULL. @return CLV_ENOMEM */
clv_status clv_path_find(char **out, const char *folder, const char *name, clv_error *err);

#endif
