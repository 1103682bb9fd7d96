/* checkpoint_resume.c - resumes a trainer from the newest intact checkpoint; renames damaged ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files/temporary.h"
#include "runtime/multi_process/multi_process.h"
#include "train/checkpoint_folder.h"
#include "train/trainer_state.h"

static const char resume_label[] = "reading a checkpoint";

/* How a process fared in reading a checkpoint. */
typedef struct read_result {
    int64_t status;
    clv_error why;
} read_result;
enum { READ_RESULT_WORDS = sizeof(read_result) / sizeof(int64_t) };

/* The result of all processes, the same in each: CLV_OK, else the failure of the first rank; one that is no damage goes
 * before one that is. */
static clv_status agree_on_read_result(const clv_trainer *t, clv_status status, clv_error *why, clv_error *err)
{
    int ranks = (int)clv_mesh_rank_count(&t->model->mesh);
    const read_result mine = {status, *why};
    const read_result *found = &(read_result){.status = CLV_OK};
    read_result *all = calloc((size_t)ranks, sizeof *all);
    clv_status met = all ? CLV_OK : clv_fail_memory(err, resume_label, (size_t)ranks * sizeof mine);
    met = clv_job_agree(t->model->job, met, err);
    if (met == CLV_OK)
        met = clv_session_allgather(t->session, resume_label, (const int64_t *)&mine, READ_RESULT_WORDS, (int64_t *)all,
                                    err);
    for (int r = 0; met == CLV_OK && r < ranks; r++)
        if (all[r].status != CLV_OK &&
            (found->status == CLV_OK || (clv_trainer_state_status_is_damage((clv_status)found->status) &&
                                         !clv_trainer_state_status_is_damage((clv_status)all[r].status))))
            found = &all[r];
    if (met == CLV_OK && found->status != CLV_OK) {
        met = (clv_status)found->status;
        *why = found->why;
    }
    free(all);
    return met;
}

static clv_status rename_damaged(const char *path, clv_error *err)
{
    char aside[CLV_PATH_SIZE + sizeof ".damaged"];
    snprintf(aside, sizeof aside, "%s.damaged", path);
    CLV_TRY(clv_folder_remove_atomically(aside, err));
    return rename(path, aside) == 0 ? CLV_OK : clv_fail_errno(err, "rename to", aside);
}

/* In the root process, after an older checkpoint was loaded. A failure is added to *why. */
static void rename_all_damaged(clv_trainer *t, const char *folder, const int64_t *damaged, int n, clv_error *why)
{
    t->unreadable = (clv_checkpoint_identity){0};
    for (int i = 0; clv_session_is_root(t->session) && i < n; i++) {
        clv_error failed = {0};
        char path[CLV_PATH_SIZE];
        clv_status status = clv_checkpoint_folder_path(path, folder, damaged[i], &failed);
        if (status == CLV_OK)
            status = rename_damaged(path, &failed);
        if (status != CLV_OK && !t->unreadable.is_set) {
            size_t length = strlen(why->message);
            t->unreadable = clv_checkpoint_identity_of(path, damaged[i]);
            snprintf(why->message + length, sizeof why->message - length, "; it could not be renamed: %s",
                     failed.message);
        }
    }
}

/* Step of the i-th newest checkpoint, as the root process lists it; -1: none. */
static clv_status next_step(int64_t *step, const clv_trainer *t, const clv_checkpoint_list *list, int i, clv_error *err)
{
    int64_t number = clv_session_is_root(t->session) && i < list->n ? list->steps[i] + 1 : 0;
    CLV_TRY(clv_session_agree(t->session, resume_label, CLV_OK, number, &number, err));
    *step = number - 1;
    return CLV_OK;
}

static clv_status try_step(clv_trainer *t, const char *folder, int64_t step, clv_error *why, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    *why = (clv_error){.rank = -1};
    clv_status status = clv_checkpoint_folder_path(path, folder, step, why);
    if (status == CLV_OK)
        status = clv_trainer_state_read(t, path, why);
    CLV_TRY(agree_on_read_result(t, status, why, err));
    t->last_checkpoint = clv_checkpoint_identity_of(path, t->step);
    return CLV_OK;
}

static clv_status resume(clv_trainer *t, const char *folder, const clv_checkpoint_list *list, clv_resumed *result,
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
            result->found = 1;
            result->steps = t->step;
            rename_all_damaged(t, folder, list->steps, result->damaged, &result->damage);
            return CLV_OK;
        }
        if (!clv_trainer_state_status_is_damage(status)) {
            if (err && err->code == CLV_OK)
                *err = why;
            return status;
        }
        if (result->damaged++ == 0)
            result->damage = why;
    }
    if (result->damaged == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EFORMAT, "%s: none of its %d checkpoints can be used; the newest: %.300s", folder,
                    result->damaged, result->damage.message);
}

clv_status clv_trainer_resume(clv_trainer *t, const char *folder, clv_resumed *result, clv_error *err)
{
    clv_checkpoint_list list = {0};
    clv_resumed resumed = {0};
    int64_t none;
    CLV_TRY(clv_require(t && folder, __func__, "a trainer and a folder", err));
    CLV_TRY(clv_trainer_checkpoint_finish(t, err));
    clv_status status = clv_session_is_root(t->session) ? clv_checkpoint_folder_list(&list, folder, err) : CLV_OK;
    status = clv_session_agree(t->session, resume_label, status, 0, &none, err);
    if (status == CLV_OK)
        status = resume(t, folder, &list, &resumed, err);
    free(list.steps);
    if (status == CLV_OK && result)
        return clv_struct_copy_out(result, sizeof resumed, sizeof resumed, &resumed, __func__, err);
    return status;
}
