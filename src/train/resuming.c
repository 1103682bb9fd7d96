/* resuming.c - going on from a checkpoint: see checkpoints.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "io/temporary.h"
#include "runtime/shares.h"
#include "train/checkpoints.h"
#include "train/state.h"

static const char reading_what[] = "reading a checkpoint";

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
            (found < 0 || (clv_state_is_damage((clv_status)all[found * WORDS]) && !clv_state_is_damage(is))))
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
        char *path = clv_checkpoints_path(folder, damaged[i]);
        clv_status status = path ? set_aside(path, &failed) : clv_fail_memory(&failed, folder, strlen(folder));
        if (status != CLV_OK && !t->passed.is_set) {
            size_t length = strlen(why->message);
            if (path)
                t->passed = clv_checkpoints_place(path, damaged[i]);
            snprintf(why->message + length, sizeof why->message - length, "; it keeps its name: %s", failed.message);
        }
        free(path);
    }
}

/* The i-th newest, as the first process sees it, in all; -1: none. */
static clv_status next_step(int64_t *step, const clv_trainer *t, const clv_step_list *list, int i, clv_error *err)
{
    int64_t number = clv_session_leads(t->session) && i < list->n ? list->steps[i] + 1 : 0;
    CLV_TRY(clv_session_agree(t->session, reading_what, CLV_OK, number, &number, err));
    *step = number - 1;
    return CLV_OK;
}

static clv_status try_step(clv_trainer *t, const char *folder, int64_t step, clv_error *why, clv_error *err)
{
    char *path = clv_checkpoints_path(folder, step);
    *why = (clv_error){.rank = -1};
    clv_status status = path ? clv_state_read(t, path, why) : clv_fail_memory(why, folder, strlen(folder));
    status = share_finding(t, status, why, err);
    if (status == CLV_OK)
        t->saved = clv_checkpoints_place(path, t->step);
    free(path);
    return status;
}

static clv_status resume(clv_trainer *t, const char *folder, const clv_step_list *list, clv_resumed *did,
                         clv_error *err)
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
        if (!clv_state_is_damage(status)) {
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
    clv_step_list list = {0};
    clv_resumed did = {0};
    int64_t none;
    CLV_TRY(clv_require(t && folder, call, "a trainer and a folder", err));
    CLV_TRY(clv_trainer_checkpoint_finish(t, err));
    clv_status status = clv_session_leads(t->session) ? clv_checkpoints_list(&list, folder, err) : CLV_OK;
    status = clv_session_agree(t->session, reading_what, status, 0, &none, err);
    if (status == CLV_OK)
        status = resume(t, folder, &list, &did, err);
    free(list.steps);
    if (status == CLV_OK && result)
        return clv_give_struct(result, sizeof did, sizeof did, &did, call, err);
    return status;
}
