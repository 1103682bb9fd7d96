/* checkpoint_folder.c - checkpoint folder: lists step-N folders, prunes old ones, removes what killed
 * runs left half written, updates "latest". */
#include "train/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/memory/grow.h"
#include "io/files/temporary.h"

static const char latest_name[] = "latest";
enum { NAME_SIZE = 40 };

static void step_folder_name(char out[NAME_SIZE], int64_t step)
{
    snprintf(out, NAME_SIZE, "step-%08lld", (long long)step);
}

clv_status clv_checkpoint_folder_path(char path[CLV_PATH_SIZE], const char *folder, int64_t step, clv_error *err)
{
    char name[NAME_SIZE];
    step_folder_name(name, step);
    return clv_path_join(path, folder, name, err);
}

/* Step of "step-00000120"; -1 for any other name. */
static int64_t parse_step(const char *name)
{
    char again[NAME_SIZE];
    long long step = -1;
    if (sscanf(name, "step-%lld", &step) != 1 || step < 0)
        return -1;
    step_folder_name(again, step);
    return strcmp(again, name) == 0 ? step : -1;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

clv_status clv_checkpoint_folder_list(clv_checkpoint_list *list, const char *folder, clv_error *err)
{
    DIR *dir = opendir(folder);
    clv_status status = CLV_OK;
    int64_t capacity = 0;
    if (!dir)
        return errno == ENOENT ? CLV_OK : clv_fail_errno(err, "list", folder);
    for (struct dirent *entry; status == CLV_OK && (entry = readdir(dir)) != NULL;) {
        int64_t step = parse_step(entry->d_name);
        if (step < 0)
            continue;
        status =
            clv_grow(&list->steps, &capacity, list->n + 1, sizeof *list->steps, "the checkpoints of a folder", err);
        if (status == CLV_OK)
            list->steps[list->n++] = step;
    }
    closedir(dir);
    if (list->n > 0)
        qsort(list->steps, (size_t)list->n, sizeof *list->steps, newest_first);
    return status;
}

void clv_checkpoint_folder_remove_stale(const char *folder)
{
    char path[CLV_PATH_SIZE];
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, "step-", 5) == 0 && strstr(entry->d_name, ".tmp-") &&
            clv_path_find(path, folder, entry->d_name))
            clv_temporary_remove_stale(path, true);
    if (dir)
        closedir(dir);
}

bool clv_checkpoint_identity_matches(const clv_checkpoint_identity *identity, const char *path)
{
    struct stat info;
    return identity->is_set && stat(path, &info) == 0 && info.st_dev == identity->device &&
           info.st_ino == identity->inode;
}

clv_checkpoint_identity clv_checkpoint_identity_of(const char *path, int64_t step)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return (clv_checkpoint_identity){0};
    return (clv_checkpoint_identity){true, step, info.st_dev, info.st_ino};
}

clv_status clv_checkpoint_folder_set_latest(const char *folder, int64_t step, clv_error *err)
{
    char name[NAME_SIZE + 1], path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, latest_name, err));
    step_folder_name(name, step);
    strcat(name, "\n");
    return clv_file_write(path, name, strlen(name), err);
}

void clv_checkpoint_folder_prune(const char *folder, int64_t saved_step, const clv_checkpoint_retention *keep)
{
    char path[CLV_PATH_SIZE];
    clv_checkpoint_list list = {0};
    clv_status status = clv_checkpoint_folder_list(&list, folder, NULL);
    for (int i = keep->newest; status == CLV_OK && i < list.n; i++) {
        if (list.steps[i] == saved_step || (keep->every > 0 && list.steps[i] % keep->every == 0))
            continue;
        status = clv_checkpoint_folder_path(path, folder, list.steps[i], NULL);
        if (status == CLV_OK)
            status = clv_folder_remove_atomically(path, NULL);
    }
    free(list.steps);
}

clv_status clv_checkpoint_folder_check_newest_is_ours(const clv_trainer *t, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    clv_checkpoint_list list = {0};
    clv_status status = clv_checkpoint_folder_list(&list, folder, err);
    int64_t newest = status == CLV_OK && list.n > 0 ? list.steps[0] : -1;
    free(list.steps);
    CLV_TRY(status);
    if (newest <= t->step)
        return CLV_OK;
    CLV_TRY(clv_checkpoint_folder_path(path, folder, newest, err));
    if (clv_checkpoint_identity_matches(&t->unreadable, path))
        return CLV_OK;
    return clv_fail(err, CLV_EEXIST,
                    "%s: a checkpoint of another run, newer than the %lld steps done here; valid: resume from it, or "
                    "another folder",
                    path, (long long)t->step);
}
