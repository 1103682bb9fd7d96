/* checkpoint_save.c - writes a checkpoint across processes, in the foreground or on a background thread.
 *
 *   1  all processes    agree on a temporary folder and create its files                    clv_trainer_checkpoint
 *   2  each             writes the shards of its ranks: from the session, or from a copy of it on a thread
 *   3  all              when each has: exchange the checksums of what they wrote            clv_trainer_checkpoint_poll
 *   4  the root         writes checksums of the weights, renames the folder, removes old checkpoints; on a thread, too
 *   5  all              agree on the result                                                 clv_trainer_checkpoint_poll
 *
 * The thread does not communicate. With one process it does steps 2 and 4.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/threads/thread.h"
#include "io/files/atomic_folder.h"
#include "io/files/temporary.h"
#include "runtime/multi_process/multi_process.h"
#include "train/checkpoint_folder.h"
#include "train/trainer_state.h"

static const char save_label[] = "saving a checkpoint";
enum { DEFAULT_KEEP = 2 };

typedef struct clv_checkpoint_save {
    clv_trainer *trainer;
    char *folder;                       /* all checkpoints */
    char path[CLV_PATH_SIZE];           /* this checkpoint */
    char temporary[CLV_PATH_SIZE + 32]; /* path during the write */
    int64_t step;
    clv_checkpoint_retention keep;
    clv_atomic_folder new_folder; /* of the root process */
    clv_trainer_state_writer *state;
    clv_session *copy; /* copy of the state; NULL: the session itself is written, or the copy is already */
    bool background;   /* on a thread */
    bool committing;   /* step 4 has begun */
    bool thread_running;
    pthread_t thread;
    pid_t process;     /* process of the thread */
    atomic_bool done;  /* the thread's part */
    clv_status status; /* result in this process; belongs to the thread until it is joined */
    clv_error why;
} clv_checkpoint_save;

static void free_save(clv_checkpoint_save *s)
{
    if (!s)
        return;
    clv_trainer_state_writer_free(s->state);
    clv_session_free(s->copy);
    free(s->folder);
    free(s);
}

static clv_status new_save(clv_checkpoint_save **out, clv_trainer *t, const char *folder,
                           const clv_checkpoint_retention *keep, clv_error *err)
{
    clv_checkpoint_save *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, folder, sizeof *s);
    *s =
        (clv_checkpoint_save){.trainer = t, .step = t->step, .keep = *keep, .new_folder.lock = -1, .process = getpid()};
    s->why.rank = -1;
    s->folder = strdup(folder);
    *out = s;
    return s->folder ? clv_checkpoint_folder_path(s->path, folder, t->step, err)
                     : clv_fail_memory(err, folder, strlen(folder));
}

/* ---- one process ---- */

/* Step 4, in the root process. */
static clv_status commit_checkpoint(clv_checkpoint_save *s, clv_error *err)
{
    CLV_TRY(clv_trainer_state_writer_finish(s->state, err));
    CLV_TRY(clv_atomic_folder_commit(&s->new_folder, err));
    CLV_TRY(clv_checkpoint_folder_set_latest(s->folder, s->step, err));
    clv_checkpoint_folder_prune(s->folder, s->step, &s->keep);
    return CLV_OK;
}

static void write_local_part(clv_checkpoint_save *s)
{
    const clv_session *session = s->trainer->session;
    s->status = clv_trainer_state_writer_write(s->state, s->copy ? s->copy : session, &s->why);
    clv_session_free(s->copy);
    s->copy = NULL;
    if (s->status == CLV_OK && !clv_session_is_multi_process(session))
        s->status = commit_checkpoint(s, &s->why);
}

/* A thread's main. */
static void *writer_thread(void *arg)
{
    clv_checkpoint_save *s = arg;
    const clv_trainer *t = s->trainer;
    if (t->on_checkpoint_write && s->background)
        t->on_checkpoint_write(t->on_checkpoint_write_arg);
    if (s->committing)
        s->status = commit_checkpoint(s, &s->why);
    else
        write_local_part(s);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

static void start_writer(clv_checkpoint_save *s)
{
    atomic_store_explicit(&s->done, false, memory_order_relaxed);
    s->thread_running = s->background && clv_thread_start(&s->thread, NULL, writer_thread, s) == 0;
    if (!s->thread_running)
        writer_thread(s);
}

static void join_writer(clv_checkpoint_save *s)
{
    if (s->thread_running)
        pthread_join(s->thread, NULL);
    s->thread_running = false;
}

/* ---- all processes ---- */

/* In the root process. An older checkpoint of the same step stays until this one is complete. */
static clv_status create_folder(clv_atomic_folder *out, const clv_trainer *t, const char *folder, const char *path,
                                clv_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return clv_fail_errno(err, "make the folder", folder);
    CLV_TRY(clv_checkpoint_folder_check_newest_is_ours(t, folder, err));
    clv_checkpoint_folder_remove_stale(folder);
    return clv_atomic_folder_open_replacing(out, path, err);
}

static clv_status prepare_folder(clv_checkpoint_save *s, clv_error *err)
{
    const clv_trainer *t = s->trainer;
    int64_t number = 0;
    clv_status status = CLV_OK;
    if (clv_session_is_root(t->session))
        status = create_folder(&s->new_folder, t, s->folder, s->path, err);
    if (s->new_folder.temporary)
        number = clv_temporary_number(s->new_folder.temporary);
    CLV_TRY(clv_session_agree(t->session, save_label, status, number, &number, err));
    snprintf(s->temporary, sizeof s->temporary, "%s.tmp-%lld", s->path, (long long)number);
    return clv_trainer_state_writer_begin(&s->state, t, s->temporary, err);
}

/* If one process has no memory for its copy, all write in the foreground. */
static void capture_state(clv_checkpoint_save *s)
{
    const clv_trainer *t = s->trainer;
    int64_t none;
    clv_status status = clv_session_snapshot(&s->copy, t->session, clv_trainer_state_is_saved, t, NULL);
    s->background = clv_session_agree(t->session, save_label, status, 0, &none, NULL) == CLV_OK;
    if (s->background)
        return;
    clv_session_free(s->copy);
    s->copy = NULL;
}

static clv_status end_save(clv_trainer *t, clv_error *err)
{
    clv_checkpoint_save *s = t->save_in_progress;
    clv_status status = s->status;
    if (status == CLV_OK)
        t->last_checkpoint = clv_checkpoint_identity_of(s->path, s->step);
    else
        clv_atomic_folder_abort(&s->new_folder, &s->why);
    if (err && status != CLV_OK && err->code == CLV_OK)
        *err = s->why;
    t->save_in_progress = NULL;
    free_save(s);
    return status;
}

/* After step 2 or 4 of all processes: starts the next step; false: there is none. */
static bool commit_or_stop(clv_checkpoint_save *s)
{
    const clv_trainer *t = s->trainer;
    join_writer(s);
    s->status = clv_job_agree(t->model->job, s->status, &s->why);
    if (s->status != CLV_OK || s->committing || !clv_session_is_multi_process(t->session))
        return false;
    s->committing = true;
    s->status = clv_trainer_state_writer_exchange(s->state, &s->why);
    if (s->status == CLV_OK && clv_session_is_root(t->session))
        start_writer(s);
    return s->status == CLV_OK;
}

static clv_status all_processes_wrote(bool *all, clv_checkpoint_save *s, clv_error *err)
{
    int64_t busy = s->thread_running && !atomic_load_explicit(&s->done, memory_order_acquire);
    CLV_TRY(clv_session_agree(s->trainer->session, save_label, CLV_OK, busy, &busy, err));
    *all = busy == 0;
    return CLV_OK;
}

static clv_status advance_save(clv_trainer *t, bool wait, clv_error *err)
{
    bool all = true;
    do {
        if (!wait)
            CLV_TRY(all_processes_wrote(&all, t->save_in_progress, err));
        if (!all)
            return CLV_OK;
    } while (commit_or_stop(t->save_in_progress));
    return end_save(t, err);
}

/* Whether the last checkpoint is of this step, in this folder and still there; the root process decides. */
static clv_status agree_already_saved(bool *is, const clv_trainer *t, const char *path, clv_status status,
                                      clv_error *err)
{
    int64_t mine = status == CLV_OK && clv_session_is_root(t->session) && t->last_checkpoint.step == t->step &&
                   clv_checkpoint_identity_matches(&t->last_checkpoint, path);
    CLV_TRY(clv_session_agree(t->session, save_label, status, mine, &mine, err));
    *is = mine != 0;
    return CLV_OK;
}

clv_status clv_trainer_checkpoint(clv_trainer *t, const char *folder, const clv_trainer_checkpoint_options *options,
                                  clv_error *err)
{
    clv_trainer_checkpoint_options o;
    clv_checkpoint_save *s = NULL;
    bool is_saved = false;
    CLV_TRY(clv_require(t && folder, __func__, "a trainer and a folder", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    if (o.keep < 0 || o.keep_every < 0)
        return clv_fail(err, CLV_EINVAL, "%s: keep is %d, keep_every %lld; valid: 0 and above; keep 0 is %d", __func__,
                        o.keep, (long long)o.keep_every, DEFAULT_KEEP);
    CLV_TRY(clv_trainer_checkpoint_finish(t, err));
    const clv_checkpoint_retention keep = {o.keep > 0 ? o.keep : DEFAULT_KEEP, o.keep_every};
    clv_status status = new_save(&s, t, folder, &keep, err);
    status = agree_already_saved(&is_saved, t, s ? s->path : NULL, status, err);
    if (status != CLV_OK || is_saved) {
        free_save(s);
        return status;
    }
    t->save_in_progress = s;
    s->status = prepare_folder(s, &s->why);
    if (s->status != CLV_OK)
        return end_save(t, err);
    if (o.background)
        capture_state(s);
    start_writer(s);
    return s->background ? CLV_OK : advance_save(t, true, err);
}

clv_status clv_trainer_checkpoint_poll(clv_trainer *t, clv_error *err)
{
    CLV_TRY(clv_require(t != NULL, __func__, "a trainer", err));
    return t->save_in_progress ? advance_save(t, false, err) : CLV_OK;
}

clv_status clv_trainer_checkpoint_finish(clv_trainer *t, clv_error *err)
{
    CLV_TRY(clv_require(t != NULL, __func__, "a trainer", err));
    return t->save_in_progress ? advance_save(t, true, err) : CLV_OK;
}

int64_t clv_trainer_checkpoint_in_progress(const clv_trainer *t)
{
    return t && t->save_in_progress ? t->save_in_progress->step : -1;
}

void clv_trainer_abandon_checkpoint(clv_trainer *t)
{
    clv_checkpoint_save *s = t->save_in_progress;
    if (!s || s->process != getpid()) /* a forked child: thread and files are its parent's */
        return;
    join_writer(s);
    if (s->status == CLV_OK && !s->committing && clv_session_is_multi_process(t->session))
        s->status = CLV_ECANCELLED;
    end_save(t, NULL);
}
