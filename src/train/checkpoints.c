/* checkpoints.c - a folder of checkpoints of a training:
 *
 *   step-00000120/           state.c has what is in it; under a temporary name until it is whole
 *   step-00000100.damaged/   one that could not be read
 *   latest                   "step-00000120": for people and scripts; the newest folder is what counts
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/options.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/temporary.h"
#include "runtime/shares.h"
#include "train/trainer.h"

static const char latest_name[] = "latest", saving_what[] = "saving a checkpoint",
                  reading_what[] = "reading a checkpoint";
enum { NAME_SIZE = 40, KEPT = 2 };

/* ---- the folder ---- */

static void name_of(char out[NAME_SIZE], int64_t step)
{
    snprintf(out, NAME_SIZE, "step-%08lld", (long long)step);
}

/* The caller's to free; NULL: no memory. */
static char *path_of(const char *folder, int64_t step)
{
    char name[NAME_SIZE];
    name_of(name, step);
    return clv_path_join(folder, name);
}

/* Of "step-00000120", and of nothing else; -1. */
static int64_t step_in(const char *name)
{
    char again[NAME_SIZE];
    long long step = -1;
    if (sscanf(name, "step-%lld", &step) != 1 || step < 0)
        return -1;
    name_of(again, step);
    return strcmp(again, name) == 0 ? step : -1;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

typedef struct step_list {
    int n;
    int64_t *steps; /* newest first */
} step_list;

static clv_status add_step(step_list *list, int64_t step, clv_error *err)
{
    int64_t *grown = realloc(list->steps, ((size_t)list->n + 1) * sizeof *grown);
    if (!grown)
        return clv_fail_memory(err, "the checkpoints of a folder", sizeof *grown);
    list->steps = grown;
    list->steps[list->n++] = step;
    return CLV_OK;
}

/* A folder that is not there has none. list->steps is the caller's to free, also after a failure. */
static clv_status list_steps(step_list *list, const char *folder, clv_error *err)
{
    DIR *dir = opendir(folder);
    clv_status status = CLV_OK;
    if (!dir)
        return errno == ENOENT ? CLV_OK : clv_fail_errno(err, "list", folder);
    for (struct dirent *entry; status == CLV_OK && (entry = readdir(dir)) != NULL;) {
        int64_t step = step_in(entry->d_name);
        if (step >= 0)
            status = add_step(list, step, err);
    }
    closedir(dir);
    if (list->n > 0)
        qsort(list->steps, (size_t)list->n, sizeof *list->steps, newest_first);
    return status;
}

/* What processes that were killed have left: "step-00000120.tmp-0". */
static void sweep(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "step-", 5) != 0 || !strstr(entry->d_name, ".tmp-"))
            continue;
        char *path = clv_path_join(folder, entry->d_name);
        if (path)
            clv_temporary_sweep(path, true);
        free(path);
    }
    if (dir)
        closedir(dir);
}

static bool same_place(const clv_trainer_place *place, const char *path)
{
    struct stat info;
    return place->is_set && stat(path, &info) == 0 && info.st_dev == place->device && info.st_ino == place->number;
}

static clv_trainer_place place_of(const char *path, int64_t step)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return (clv_trainer_place){0};
    return (clv_trainer_place){true, step, info.st_dev, info.st_ino};
}

/* ---- saving ---- */

static clv_status point_to(const char *folder, int64_t step, clv_error *err)
{
    char name[NAME_SIZE + 1], *path = clv_path_join(folder, latest_name);
    if (!path)
        return clv_fail_memory(err, folder, strlen(folder));
    name_of(name, step);
    strcat(name, "\n");
    clv_status status = clv_file_write(path, name, strlen(name), err);
    free(path);
    return status;
}

/* How many of a folder's checkpoints stay: see clv_trainer_checkpoint_options. */
typedef struct keeping {
    int newest;
    int64_t every;
} keeping;

/* All that do not stay, but for this one. What cannot be removed is tried again after the next: this one is there. */
static void prune(const char *folder, int64_t saved, const keeping *keep)
{
    step_list list = {0};
    clv_status status = list_steps(&list, folder, NULL);
    for (int i = keep->newest; status == CLV_OK && i < list.n; i++) {
        if (list.steps[i] == saved || (keep->every > 0 && list.steps[i] % keep->every == 0))
            continue;
        char *path = path_of(folder, list.steps[i]);
        status = path ? clv_temporary_retire(path, NULL) : CLV_ENOMEM;
        free(path);
    }
    free(list.steps);
}

/* Newer ones are another run's: what goes on from here would find them, not what is saved now. What could not be read,
 * nor be set aside, will be passed over again. */
static clv_status check_newest(const clv_trainer *t, const char *folder, clv_error *err)
{
    step_list list = {0};
    clv_status status = list_steps(&list, folder, err);
    char *path = status == CLV_OK && list.n > 0 ? path_of(folder, list.steps[0]) : NULL;
    if (path && list.steps[0] > t->step && !same_place(&t->passed, path))
        status =
            clv_fail(err, CLV_EEXIST,
                     "%s: is there, newer than the %lld steps done here: of another run; valid: to resume from it, "
                     "or another folder",
                     path, (long long)t->step);
    else if (status == CLV_OK && list.n > 0 && !path)
        status = clv_fail_memory(err, folder, strlen(folder));
    free(path);
    free(list.steps);
    return status;
}

/* The first process: the place of a new checkpoint. One of as many steps stays until this one is whole. */
static clv_status begin(clv_new_folder *out, const clv_trainer *t, const char *folder, const char *path, clv_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return clv_fail_errno(err, "make the folder", folder);
    CLV_TRY(check_newest(t, folder, err));
    sweep(folder);
    return clv_new_folder_replace(out, path, err);
}

static clv_status finish(clv_new_folder *made, const char *folder, int64_t step, const keeping *keep, clv_error *err)
{
    CLV_TRY(clv_new_folder_commit(made, err));
    CLV_TRY(point_to(folder, step, err));
    prune(folder, step, keep);
    return CLV_OK;
}

/* The name under which all processes write, the first one having made it. *temporary is the caller's to free, also
 * after a failure. */
static clv_status agree_on_place(char **temporary, const clv_trainer *t, const clv_new_folder *made, const char *path,
                                 clv_status status, clv_error *err)
{
    int64_t number = made->temporary ? clv_temporary_number(made->temporary) : 0, none;
    CLV_TRY(clv_session_agree(t->session, saving_what, status, number, &number, err));
    if (asprintf(temporary, "%s.tmp-%lld", path, (long long)number) < 0)
        *temporary = NULL;
    status = *temporary ? CLV_OK : clv_fail_memory(err, path, strlen(path));
    return clv_session_agree(t->session, saving_what, status, 0, &none, err);
}

static clv_status save(const clv_trainer *t, const char *folder, const char *path, const keeping *keep, clv_error *err)
{
    clv_new_folder made = {.lock = -1};
    bool leads = clv_session_leads(t->session);
    char *temporary = NULL;
    clv_error why = {.rank = -1};
    clv_status status = leads ? begin(&made, t, folder, path, err) : CLV_OK;
    status = agree_on_place(&temporary, t, &made, path, status, err);
    bool met = status == CLV_OK;
    if (met)
        status = clv_trainer_write_state(t, temporary, &why);
    if (leads && status == CLV_OK)
        status = finish(&made, folder, t->step, keep, &why);
    else if (leads)
        clv_new_folder_abandon(&made, &why);
    free(temporary);
    if (met)
        status = clv_trainer_agree(t, status, &why);
    if (err && status != CLV_OK && err->code == CLV_OK)
        *err = why;
    return status;
}

/* Whether the last checkpoint is this one, by whatever name its folder is called, and there still: as the first process
 * sees it, in all. */
static clv_status ask_saved(bool *is, const clv_trainer *t, const char *path, clv_status status, clv_error *err)
{
    int64_t mine =
        status == CLV_OK && clv_session_leads(t->session) && t->saved.step == t->step && same_place(&t->saved, path);
    CLV_TRY(clv_session_agree(t->session, saving_what, status, mine, &mine, err));
    *is = mine != 0;
    return CLV_OK;
}

clv_status clv_trainer_checkpoint(clv_trainer *t, const char *folder, const clv_trainer_checkpoint_options *options,
                                  clv_error *err)
{
    static const char call[] = "clv_trainer_checkpoint";
    clv_trainer_checkpoint_options o;
    bool is_saved = false;
    CLV_TRY(clv_require(t && folder, call, "a trainer and a folder", err));
    CLV_TRY(clv_take_options(&o, sizeof o, offsetof(clv_trainer_checkpoint_options, keep_every), options, call, err));
    if (o.keep < 0 || o.keep_every < 0)
        return clv_fail(err, CLV_EINVAL,
                        "%s: keep is %d, keep_every %lld; valid: 0 (which is %d, and no more) and above", call, o.keep,
                        (long long)o.keep_every, KEPT);
    const keeping keep = {o.keep > 0 ? o.keep : KEPT, o.keep_every};
    char *path = path_of(folder, t->step);
    clv_status status = path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
    status = ask_saved(&is_saved, t, path, status, err);
    if (status == CLV_OK && !is_saved) {
        status = save(t, folder, path, &keep, err);
        if (status == CLV_OK)
            t->saved = place_of(path, t->step);
    }
    free(path);
    return status;
}

/* ---- going on ---- */

/* What the processes found, the same in all: CLV_OK; else that of the lowest that failed, what is no damage first. */
static clv_status share_finding(const clv_trainer *t, clv_status status, clv_error *why, clv_error *err)
{
    enum { WORDS = 1 + (int)(sizeof(clv_error) + sizeof(int64_t) - 1) / (int)sizeof(int64_t) };
    int ranks = (int)clv_mesh_ranks(&t->model->mesh), found = -1;
    int64_t mine[WORDS] = {status};
    int64_t *all = calloc((size_t)ranks * WORDS, sizeof *all);
    memcpy(mine + 1, why, sizeof *why);
    clv_status met = all ? CLV_OK : clv_fail_memory(err, reading_what, (size_t)ranks * sizeof mine);
    status = clv_trainer_agree(t, met, err);
    if (status != CLV_OK) {
        free(all);
        return status;
    }
    met = clv_session_tell(t->session, reading_what, mine, WORDS, all, err);
    for (int r = 0; met == CLV_OK && r < ranks; r++) {
        clv_status is = (clv_status)all[r * WORDS];
        if (is != CLV_OK &&
            (found < 0 || (clv_trainer_is_damage((clv_status)all[found * WORDS]) && !clv_trainer_is_damage(is))))
            found = r;
    }
    if (met == CLV_OK && found >= 0) {
        met = (clv_status)all[found * WORDS];
        memcpy(why, all + found * WORDS + 1, sizeof *why);
    }
    free(all);
    return met;
}

static clv_status set_aside(const char *path, clv_error *err)
{
    char *aside;
    if (asprintf(&aside, "%s.damaged", path) < 0)
        return clv_fail_memory(err, path, strlen(path));
    clv_status status = clv_temporary_retire(aside, err);
    if (status == CLV_OK && rename(path, aside) != 0)
        status = clv_fail_errno(err, "rename to", aside);
    free(aside);
    return status;
}

/* By the first process, when a checkpoint before them could be read. Where that fails they stay, and *why says so. */
static void set_damaged_aside(clv_trainer *t, const char *folder, const int64_t *damaged, int n, clv_error *why)
{
    t->passed = (clv_trainer_place){0};
    for (int i = 0; clv_session_leads(t->session) && i < n; i++) {
        clv_error failed = {0};
        char *path = path_of(folder, damaged[i]);
        clv_status status = path ? set_aside(path, &failed) : clv_fail_memory(&failed, folder, strlen(folder));
        if (status != CLV_OK && !t->passed.is_set) {
            size_t length = strlen(why->message);
            if (path)
                t->passed = place_of(path, damaged[i]);
            snprintf(why->message + length, sizeof why->message - length, "; it keeps its name: %s", failed.message);
        }
        free(path);
    }
}

/* The i-th newest, as the first process sees it, in all; -1: none. */
static clv_status next_step(int64_t *step, const clv_trainer *t, const step_list *list, int i, clv_error *err)
{
    int64_t number = clv_session_leads(t->session) && i < list->n ? list->steps[i] + 1 : 0;
    CLV_TRY(clv_session_agree(t->session, reading_what, CLV_OK, number, &number, err));
    *step = number - 1;
    return CLV_OK;
}

static clv_status try_step(clv_trainer *t, const char *folder, int64_t step, clv_error *why, clv_error *err)
{
    char *path = path_of(folder, step);
    *why = (clv_error){.rank = -1};
    clv_status status = path ? clv_trainer_read_state(t, path, why) : clv_fail_memory(why, folder, strlen(folder));
    status = share_finding(t, status, why, err);
    if (status == CLV_OK)
        t->saved = place_of(path, t->step);
    free(path);
    return status;
}

static clv_status resume(clv_trainer *t, const char *folder, const step_list *list, clv_resumed *did, clv_error *err)
{
    for (int i = 0;; i++) {
        int64_t step;
        clv_error why;
        CLV_TRY(next_step(&step, t, list, i, err));
        if (step < 0)
            break;
        clv_status status = try_step(t, folder, step, &why, err);
        if (status == CLV_OK) {
            did->found = 1;
            did->steps = t->step;
            set_damaged_aside(t, folder, list->steps, did->damaged, &did->why);
            return CLV_OK;
        }
        if (!clv_trainer_is_damage(status)) {
            if (err && err->code == CLV_OK)
                *err = why;
            return status;
        }
        if (did->damaged++ == 0)
            did->why = why;
    }
    if (did->damaged == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EFORMAT, "%s: none of its %d checkpoints can be used; the newest: %.300s", folder,
                    did->damaged, did->why.message);
}

clv_status clv_trainer_resume(clv_trainer *t, const char *folder, clv_resumed *result, clv_error *err)
{
    static const char call[] = "clv_trainer_resume";
    step_list list = {0};
    clv_resumed did = {0};
    int64_t none;
    CLV_TRY(clv_require(t && folder, call, "a trainer and a folder", err));
    clv_status status = clv_session_leads(t->session) ? list_steps(&list, folder, err) : CLV_OK;
    status = clv_session_agree(t->session, reading_what, status, 0, &none, err);
    if (status == CLV_OK)
        status = resume(t, folder, &list, &did, err);
    free(list.steps);
    if (status == CLV_OK && result)
        return clv_give_struct(result, sizeof did, sizeof did, &did, call, err);
    return status;
}
