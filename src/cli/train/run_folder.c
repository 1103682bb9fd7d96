/* run_folder.c - the output folder of a training run: lock, reserved disk space, metrics.jsonl, checkpoints. */
#include "cli/train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/output/messages.h"

static const char unfinished_name[] = "metrics.unfinished.jsonl", kept_format[] = "metrics.unfinished-%d.jsonl";

enum { KEPT = 10000 };

/* Fails with the message of errno after an attempt to `what` ("rename to") path. */
static clv_status fail_by_errno(clv_error *err, const char *what, const char *path)
{
    return clv_fail(err, errno == ENOENT ? CLV_ENOTFOUND : CLV_EIO, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* The caller frees it; NULL: no memory. */
static char *join(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* ---- the folder of a run that was stopped ---- */

/* Files that a stopped run leaves: its metrics, those of earlier runs, and unfinished weights. */
static bool is_leftover(const char *name)
{
    static const char *const begins[] = {"metrics.unfinished.jsonl", "metrics.unfinished-", "model.safetensors.tmp-",
                                         "adapter_model.safetensors.tmp-"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool has_checkpoints(const clv_run_folder *f)
{
    char *path = join(f->path, "checkpoints");
    struct stat info;
    bool has = path && lstat(path, &info) == 0;
    free(path);
    return has;
}

/* Whether the folder holds nothing but files that a run left. */
static bool has_only_leftovers(const clv_run_folder *f, bool *empty)
{
    DIR *dir = opendir(f->path);
    bool left = dir != NULL;
    *empty = left;
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        left = left && is_leftover(entry->d_name);
        *empty = *empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
    }
    if (dir)
        closedir(dir);
    return left;
}

static clv_status check_leftovers(const clv_run_folder *f, bool resume, clv_error *err)
{
    struct stat info;
    bool empty, left = has_only_leftovers(f, &empty);
    if (has_checkpoints(f))
        return resume ? CLV_OK
                      : clv_fail(err, CLV_EEXIST,
                                 "--out %s: holds the checkpoints of a run; --resume goes on with it, or name a new "
                                 "folder",
                                 f->path);
    if (resume && empty)
        return CLV_OK;
    if (!left || lstat(f->unfinished, &info) != 0 || !S_ISREG(info.st_mode))
        return clv_fail(err, CLV_EEXIST,
                        "--out %s: exists already; name a new folder, or that of a run that was stopped", f->path);
    return CLV_OK;
}

/* Keeps earlier metrics under the first free name. */
static clv_status keep_old_metrics(const clv_run_folder *f, const char *command, clv_error *err)
{
    struct stat info;
    if (lstat(f->unfinished, &info) != 0)
        return CLV_OK;
    if (info.st_size == 0)
        return unlink(f->unfinished) == 0 ? CLV_OK : fail_by_errno(err, "remove", f->unfinished);
    for (int i = 1; i < KEPT; i++) {
        char name[64];
        snprintf(name, sizeof name, kept_format, i);
        char *kept = join(f->path, name);
        if (!kept)
            return clv_fail_memory(err, name, strlen(f->path));
        bool taken = lstat(kept, &info) == 0, moved = !taken && rename(f->unfinished, kept) == 0;
        clv_status status = taken || moved ? CLV_OK : fail_by_errno(err, "rename to", kept);
        free(kept);
        if (moved)
            clv_log("%s: note: %s is of a run that was stopped, and taken again; that run's metrics are in %s", command,
                    f->path, name);
        if (!taken)
            return status;
    }
    return clv_fail(err, CLV_EEXIST, "--out %s: holds the metrics of %d runs; name a new folder", f->path, KEPT - 1);
}

/* ---- making it ---- */

/* Locks the folder, if the file system has locks. A resumed run may wait for a killed one to end. */
static clv_status lock_folder(clv_run_folder *f, bool resume, clv_error *err)
{
    enum { TRIES = 100, NAP_NS = 100000000 };
    f->lock = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock < 0)
        return errno == ENOTDIR ? clv_fail(err, CLV_EEXIST, "--out %s: exists already, and is no folder", f->path)
                                : fail_by_errno(err, "open", f->path);
    int left = resume ? TRIES : 1;
    while (flock(f->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && --left > 0)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    if (left == 0)
        return clv_fail(err, CLV_EEXIST, "--out %s: another run is writing to it; name a new folder", f->path);
    return CLV_OK;
}

/* Reserves disk space, if the file system can. */
static clv_status reserve_space(clv_run_folder *f, int64_t bytes, clv_error *err)
{
    f->reserved_fd = open(f->path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (f->reserved_fd < 0 || fallocate(f->reserved_fd, 0, 0, bytes > 0 ? bytes : 1) == 0)
        return CLV_OK;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return clv_fail(err, CLV_EIO, "--out %s: no room for the checkpoint's %lld bytes: %s", f->path,
                        (long long)bytes, strerror(errno));
    clv_run_folder_release_space(f);
    return CLV_OK;
}

static clv_status open_metrics(clv_run_folder *f, clv_error *err)
{
    f->lines = fopen(f->unfinished, "wxe");
    return f->lines ? CLV_OK : fail_by_errno(err, "create", f->unfinished);
}

static clv_status make(clv_run_folder *f, int64_t bytes, bool resume, clv_error *err)
{
    f->unfinished = join(f->path, unfinished_name);
    f->metrics = join(f->path, "metrics.jsonl");
    if (!f->unfinished || !f->metrics)
        return clv_fail_memory(err, f->path, strlen(f->path));
    f->made = mkdir(f->path, 0777) == 0;
    if (!f->made && errno != EEXIST)
        return fail_by_errno(err, "make the folder", f->path);
    CLV_TRY(lock_folder(f, resume, err));
    if (!f->made)
        CLV_TRY(check_leftovers(f, resume, err));
    return reserve_space(f, bytes, err);
}

clv_status clv_run_folder_open(clv_run_folder *out, const char *path, int64_t bytes, bool resume, clv_error *err)
{
    clv_run_folder folder = {.path = path, .lock = -1, .reserved_fd = -1};
    clv_status status = make(&folder, bytes, resume, err);
    if (status == CLV_OK)
        *out = folder;
    else
        clv_run_folder_close(&folder);
    return status;
}

/* ---- lines ---- */

/* Truncates the file after its last whole line of a step before `steps`; *n: lines kept. */
static clv_status truncate_metrics(const clv_run_folder *f, int64_t steps, int64_t *n, clv_error *err)
{
    FILE *lines = fopen(f->unfinished, "r+e");
    char line[1024];
    long at = 0;
    if (!lines)
        return errno == ENOENT ? CLV_OK : fail_by_errno(err, "open", f->unfinished);
    for (*n = 0; fgets(line, sizeof line, lines); (*n)++) {
        long long step;
        if (!strchr(line, '\n') || sscanf(line, "{\"step\":%lld,", &step) != 1 || step >= steps)
            break;
        at = ftell(lines);
    }
    bool cut = at >= 0 && ftruncate(fileno(lines), at) == 0;
    clv_status status = cut ? CLV_OK : fail_by_errno(err, "cut", f->unfinished);
    fclose(lines);
    return status;
}

/* A run that has ended can be resumed, too. */
static clv_status resume_metrics(clv_run_folder *f, int64_t steps, const char *command, clv_error *err)
{
    struct stat info;
    if (lstat(f->unfinished, &info) != 0 && rename(f->metrics, f->unfinished) != 0 && errno != ENOENT)
        return fail_by_errno(err, "rename", f->metrics);
    if (lstat(f->unfinished, &info) == 0 && !S_ISREG(info.st_mode))
        return clv_fail(err, CLV_EEXIST, "%s: is no file", f->unfinished);
    CLV_TRY(truncate_metrics(f, steps, &f->n, err));
    if (f->n < steps)
        clv_log("%s: note: %s has whole lines of the first %lld of %lld steps only; those behind are left out", command,
                f->unfinished, (long long)f->n, (long long)steps);
    f->lines = fopen(f->unfinished, "ae");
    return f->lines ? CLV_OK : fail_by_errno(err, "open", f->unfinished);
}

clv_status clv_run_folder_begin_metrics(clv_run_folder *f, int64_t steps, const char *command, clv_error *err)
{
    if (steps > 0)
        return resume_metrics(f, steps, command, err);
    if (!f->made)
        CLV_TRY(keep_old_metrics(f, command, err));
    return open_metrics(f, err);
}

clv_status clv_run_folder_await_visible(const char *out, clv_error *err)
{
    enum { LOOKS = 30, NAP_NS = 100000000 }; /* new files appear late on shared file systems */
    char *lines = join(out, unfinished_name);
    bool seen = false;
    for (int i = 0; lines && !seen && i < LOOKS; i++) {
        seen = access(lines, F_OK) == 0;
        if (!seen)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    free(lines);
    if (!lines)
        return clv_fail_memory(err, "the name of a file", strlen(out));
    return seen ? CLV_OK
                : clv_fail(err, CLV_ENOTFOUND,
                           "%s: the run that the first process has begun there is not seen here: all processes save "
                           "into one folder, on a file system that all hosts share",
                           out);
}

void clv_run_folder_sync_metrics(clv_run_folder *f)
{
    if (f->lines && f->write_errno == 0 && fsync(fileno(f->lines)) != 0 && errno != EINVAL && errno != EROFS)
        f->write_errno = errno;
}

/* ---- the run ---- */

void clv_run_folder_append_metrics(clv_run_folder *f, const char *line)
{
    if (f->lines == NULL || f->write_errno != 0)
        return;
    if (fputs(line, f->lines) < 0 || fflush(f->lines) != 0)
        f->write_errno = errno;
    else
        f->n++;
}

void clv_run_folder_release_space(clv_run_folder *f)
{
    if (f->reserved_fd >= 0)
        close(f->reserved_fd);
    f->reserved_fd = -1;
}

clv_status clv_run_folder_finish(clv_run_folder *f, clv_error *err)
{
    if (f->write_errno == 0 && fsync(fileno(f->lines)) != 0 && errno != EINVAL && errno != EROFS)
        f->write_errno = errno;
    if (f->write_errno != 0)
        return clv_fail(err, CLV_EIO, "%s: %s; steps from %lld on are missing there (the checkpoint is whole)",
                        f->unfinished, strerror(f->write_errno), (long long)f->n);
    if (rename(f->unfinished, f->metrics) != 0)
        return fail_by_errno(err, "rename to", f->metrics);
    /* a rename is durable only after an fsync of its folder, which some file systems lack */
    if (fsync(f->lock) != 0 && errno != EINVAL && errno != EROFS)
        return fail_by_errno(err, "flush", f->path);
    return CLV_OK;
}

const char *clv_run_folder_metrics_path(const clv_run_folder *f)
{
    return access(f->unfinished, F_OK) == 0 ? f->unfinished : f->metrics;
}

void clv_run_folder_close(clv_run_folder *f)
{
    clv_run_folder_release_space(f);
    bool is_empty = f->lines ? f->n == 0 : f->made;
    if (f->lines)
        fclose(f->lines);
    if (f->lines && is_empty)
        unlink(f->unfinished);
    if (is_empty)
        rmdir(f->path); /* succeeds only if it is empty */
    if (f->lock >= 0)
        close(f->lock);
    free(f->unfinished);
    free(f->metrics);
    *f = (clv_run_folder){.lock = -1, .reserved_fd = -1};
}
