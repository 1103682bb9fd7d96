/* checkpoint_resume.c - resumes a trainer from the newest intact checkpoint; renames damaged ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "io/files/temporary.h"
#include "runtime/multi_process/multi_process.h"
#include "train/checkpoint_folder.h"
#include "train/trainer_state.h"

static const char resume_label[] = "reading a checkpoint";

/* What the processes found, the same in all: CLV_OK; else that of the lowest that failed, what is no damage first. */
static clv_status agree_on_read_result(const clv_trainer *t, clv_status status, clv_error *why, clv_error *err)
{
    enum { WORDS = 1 + (int)(sizeof(clv_error) + sizeof(int64_t) - 1) / (int)sizeof(int64_t) };
    int ranks = (int)clv_mesh_rank_count(&t->model->mesh), found = -1;
    int64_t mine[WORDS] = {status};
    int64_t *all = calloc((size_t)ranks * WORDS, sizeof *all);
    memcpy(mine + 1, why, sizeof *why);
    clv_status met = all ? CLV_OK : clv_fail_memory(err, resume_label, (size_t)ranks * sizeof mine);
    status = clv_trainer_agree_on_status(t, met, err);
    if (status != CLV_OK) {
        free(all);
        return status;
    }
    met = clv_session_allgather(t->session, resume_label, mine, WORDS, all, err);
    for (int r = 0; met == CLV_OK && r < ranks; r++) {
        clv_status is = (clv_status)all[r * WORDS];
        if (is != CLV_OK && (found < 0 || (clv_trainer_state_is_damaged((clv_status)all[found * WORDS]) &&
                                           !clv_trainer_state_is_damaged(is))))
            found = r;
    }
    if (met == CLV_OK && found >= 0) {
        met = (clv_status)all[found * WORDS];
        memcpy(why, all + found * WORDS + 1, sizeof *why);
    }
    free(all);
    return met;
}

static clv_status rename_damaged(const char *path, clv_error *err)
{
    char *aside;
    if (asprintf(&aside, "%s.damaged", path) < 0)
        return clv_fail_memory(err, path, strlen(path));
    clv_status status = clv_temporary_discard_folder(aside, err);
    if (status == CLV_OK && rename(path, aside) != 0)
        status = clv_fail_errno(err, "rename to", aside);
    free(aside);
    return status;
}

/* By the first process, when a checkpoint before them could be read. Where that fails they stay, and *why says so. */
static void rename_all_damaged(clv_trainer *t, const char *folder, const int64_t *damaged, int n, clv_error *why)
{
    t->passed = (clv_checkpoint_identity){0};
    for (int i = 0; clv_session_is_root(t->session) && i < n; i++) {
        clv_error failed = {0};
        char *path = clv_checkpoint_folder_path(folder, damaged[i]);
        clv_status status = path ? rename_damaged(path, &failed) : clv_fail_memory(&failed, folder, strlen(folder));
        if (status != CLV_OK && !t->passed.is_set) {
            size_t length = strlen(why->message);
            if (path)
                t->passed = clv_checkpoint_identity_of(path, damaged[i]);
            snprintf(why->message + length, sizeof why->message - length, "; it keeps its name: %s", failed.message);
        }
        free(path);
    }
}

/* The i-th newest, as the first process sees it, in all; -1: none. */
static clv_status next_step(int64_t *step, const clv_trainer *t, const clv_checkpoint_list *list, int i, clv_error *err)
{
    int64_t number = clv_session_is_root(t->session) && i < list->n ? list->steps[i] + 1 : 0;
    CLV_TRY(clv_session_agree(t->session, resume_label, CLV_OK, number, &number, err));
    *step = number - 1;
    return CLV_OK;
}

static clv_status try_step(clv_trainer *t, const char *folder, int64_t step, clv_error *why, clv_error *err)
{
    char *path = clv_checkpoint_folder_path(folder, step);
    *why = (clv_error){.rank = -1};
    clv_status status = path ? clv_trainer_state_read(t, path, why) : clv_fail_memory(why, folder, strlen(folder));
    status = agree_on_read_result(t, status, why, err);
    if (status == CLV_OK)
        t->saved = clv_checkpoint_identity_of(path, t->step);
    free(path);
    return status;
}

static clv_status resume(clv_trainer *t, const char *folder, const clv_checkpoint_list *list, clv_resumed *did,
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
            rename_all_damaged(t, folder, list->steps, did->damaged, &did->why);
            return CLV_OK;
        }
        if (!clv_trainer_state_is_damaged(status)) {
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
    clv_checkpoint_list list = {0};
    clv_resumed did = {0};
    int64_t none;
    CLV_TRY(clv_require(t && folder, call, "a trainer and a folder", err));
    CLV_TRY(clv_trainer_checkpoint_finish(t, err));
    clv_status status = clv_session_is_root(t->session) ? clv_checkpoint_folder_list(&list, folder, err) : CLV_OK;
    status = clv_session_agree(t->session, resume_label, status, 0, &none, err);
    if (status == CLV_OK)
        status = resume(t, folder, &list, &did, err);
    free(list.steps);
    if (status == CLV_OK && result)
        return clv_struct_copy_out(result, sizeof did, sizeof did, &did, call, err);
    return status;
}
