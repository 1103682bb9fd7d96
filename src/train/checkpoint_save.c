/* checkpoint_save.c - writes a checkpoint across processes, in the foreground or on a background thread.
 *
 *   all, together       agree on a place, and begin its files                     clv_trainer_checkpoint
 *   each, for itself    writes what its ranks hold: the session's state while it waits, or a copy of it, by a thread
 *   all, together       when each has: they tell what they wrote                  clv_trainer_checkpoint_poll
 *   the first, alone    sums the weights up, puts the folder in its place, removes older ones; by a thread, too
 *   all, together       know that it is there                                     clv_trainer_checkpoint_poll
 *
 * The thread has no word with other processes. Of one process it does the third and fourth line as well.
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
#include "base/versioned_structs.h"
#include "io/files/atomic_folder.h"
#include "io/files/temporary.h"
#include "runtime/multi_process/multi_process.h"
#include "train/checkpoint_folder.h"
#include "train/trainer_state.h"

static const char save_label[] = "saving a checkpoint";
enum { DEFAULT_KEEP = 2 };

typedef struct clv_checkpoint_save {
    clv_trainer *trainer;
    char *folder, *path; /* of all checkpoints; of this one */
    char *temporary;     /* where it is written */
    int64_t step;
    clv_checkpoint_retention keep;
    clv_atomic_folder made; /* by the first process */
    clv_trainer_state_writer *state;
    clv_session *copy; /* what is written; NULL: the session, which waits, or all is written */
    bool background;   /* threads write */
    bool ends;         /* all have written: the first one ends it */
    bool runs;         /* the thread is to be joined */
    pthread_t thread;
    pid_t process; /* that has the thread */
    atomic_bool done;
    clv_status status; /* of what this process has done; the thread's until it is joined */
    clv_error why;
} clv_checkpoint_save;

static void free_save(clv_checkpoint_save *s)
{
    if (!s)
        return;
    clv_trainer_state_writer_free(s->state);
    clv_session_free(s->copy);
    free(s->folder);
    free(s->path);
    free(s->temporary);
    free(s);
}

static clv_status new_save(clv_checkpoint_save **out, clv_trainer *t, const char *folder,
                           const clv_checkpoint_retention *keep, clv_error *err)
{
    clv_checkpoint_save *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, folder, sizeof *s);
    *s = (clv_checkpoint_save){.trainer = t, .step = t->step, .keep = *keep, .made.lock = -1, .process = getpid()};
    s->why.rank = -1;
    s->folder = strdup(folder);
    s->path = clv_checkpoint_folder_path(folder, t->step);
    *out = s;
    return s->folder && s->path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
}

/* ---- each for itself ---- */

/* By the first process, when all of the folder's files are there but those that are one for all. */
static clv_status commit_checkpoint(clv_checkpoint_save *s, clv_error *err)
{
    CLV_TRY(clv_trainer_state_writer_finish(s->state, err));
    CLV_TRY(clv_atomic_folder_commit(&s->made, err));
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
    if (s->ends)
        s->status = commit_checkpoint(s, &s->why);
    else
        write_local_part(s);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

static void start_writer(clv_checkpoint_save *s)
{
    atomic_store_explicit(&s->done, false, memory_order_relaxed);
    s->runs = s->background && clv_thread_start(&s->thread, NULL, writer_thread, s) == 0;
    if (!s->runs)
        writer_thread(s);
}

static void join_writer(clv_checkpoint_save *s)
{
    if (s->runs)
        pthread_join(s->thread, NULL);
    s->runs = false;
}

/* ---- all together ---- */

/* The first process: the place of a new checkpoint. One of as many steps stays until this one is whole. */
static clv_status create_folder(clv_atomic_folder *out, const clv_trainer *t, const char *folder, const char *path,
                                clv_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return clv_fail_errno(err, "make the folder", folder);
    CLV_TRY(clv_checkpoint_folder_check_newest(t, folder, err));
    clv_checkpoint_folder_remove_stale(folder);
    return clv_atomic_folder_replace(out, path, err);
}

/* The name under which all processes write, the first one having made it. *temporary is the caller's to free, also
 * after a failure. */
static clv_status agree_on_folder(char **temporary, const clv_trainer *t, const clv_atomic_folder *made,
                                  const char *path, clv_status status, clv_error *err)
{
    int64_t number = made->temporary ? clv_temporary_id(made->temporary) : 0, none;
    CLV_TRY(clv_session_agree(t->session, save_label, status, number, &number, err));
    if (asprintf(temporary, "%s.tmp-%lld", path, (long long)number) < 0)
        *temporary = NULL;
    status = *temporary ? CLV_OK : clv_fail_memory(err, path, strlen(path));
    return clv_session_agree(t->session, save_label, status, 0, &none, err);
}

static clv_status prepare_folder(clv_checkpoint_save *s, clv_error *err)
{
    const clv_trainer *t = s->trainer;
    clv_status status = clv_session_is_root(t->session) ? create_folder(&s->made, t, s->folder, s->path, err) : CLV_OK;
    CLV_TRY(agree_on_folder(&s->temporary, t, &s->made, s->path, status, err));
    return clv_trainer_state_writer_begin(&s->state, t, s->temporary, err);
}

/* Where one process has no memory for a copy, the training of all waits. */
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
    clv_checkpoint_save *s = t->saving;
    clv_status status = s->status;
    if (status == CLV_OK)
        t->saved = clv_checkpoint_identity_of(s->path, s->step);
    else
        clv_atomic_folder_abort(&s->made, &s->why);
    if (err && status != CLV_OK && err->code == CLV_OK)
        *err = s->why;
    t->saving = NULL;
    free_save(s);
    return status;
}

/* When all have done their parts: begins the next ones; false: there are none. */
static bool commit_or_stop(clv_checkpoint_save *s)
{
    const clv_trainer *t = s->trainer;
    join_writer(s);
    s->status = clv_trainer_agree_on_status(t, s->status, &s->why);
    if (s->status != CLV_OK || s->ends || !clv_session_is_multi_process(t->session))
        return false;
    s->ends = true;
    s->status = clv_trainer_state_writer_exchange(s->state, &s->why);
    if (s->status == CLV_OK && clv_session_is_root(t->session))
        start_writer(s);
    return s->status == CLV_OK;
}

/* Whether all have done their parts. */
static clv_status all_processes_wrote(bool *all, clv_checkpoint_save *s, clv_error *err)
{
    int64_t busy = s->runs && !atomic_load_explicit(&s->done, memory_order_acquire);
    CLV_TRY(clv_trainer_max_over_processes(s->trainer, busy, &busy, err));
    *all = busy == 0;
    return CLV_OK;
}

static clv_status advance_save(clv_trainer *t, bool wait, clv_error *err)
{
    bool all = true;
    do {
        if (!wait)
            CLV_TRY(all_processes_wrote(&all, t->saving, err));
        if (!all)
            return CLV_OK;
    } while (commit_or_stop(t->saving));
    return end_save(t, err);
}

/* Whether the last checkpoint is this one, by whatever name its folder is called, and there still: as the first process
 * sees it, in all. */
static clv_status agree_already_saved(bool *is, const clv_trainer *t, const char *path, clv_status status,
                                      clv_error *err)
{
    int64_t mine = status == CLV_OK && clv_session_is_root(t->session) && t->saved.step == t->step &&
                   clv_checkpoint_identity_matches(&t->saved, path);
    CLV_TRY(clv_session_agree(t->session, save_label, status, mine, &mine, err));
    *is = mine != 0;
    return CLV_OK;
}

clv_status clv_trainer_checkpoint(clv_trainer *t, const char *folder, const clv_trainer_checkpoint_options *options,
                                  clv_error *err)
{
    static const char call[] = "clv_trainer_checkpoint";
    clv_trainer_checkpoint_options o;
    clv_checkpoint_save *s = NULL;
    bool is_saved = false;
    CLV_TRY(clv_require(t && folder, call, "a trainer and a folder", err));
    CLV_TRY(
        clv_options_copy_in(&o, sizeof o, offsetof(clv_trainer_checkpoint_options, keep_every), options, call, err));
    if (o.keep < 0 || o.keep_every < 0)
        return clv_fail(err, CLV_EINVAL,
                        "%s: keep is %d, keep_every %lld; valid: 0 (which is %d, and no more) and above", call, o.keep,
                        (long long)o.keep_every, DEFAULT_KEEP);
    CLV_TRY(clv_trainer_checkpoint_finish(t, err));
    const clv_checkpoint_retention keep = {o.keep > 0 ? o.keep : DEFAULT_KEEP, o.keep_every};
    clv_status status = new_save(&s, t, folder, &keep, err);
    status = agree_already_saved(&is_saved, t, s ? s->path : NULL, status, err);
    if (status != CLV_OK || is_saved) {
        free_save(s);
        return status;
    }
    t->saving = s;
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
    CLV_TRY(clv_require(t != NULL, "clv_trainer_checkpoint_poll", "a trainer", err));
    return t->saving ? advance_save(t, false, err) : CLV_OK;
}

clv_status clv_trainer_checkpoint_finish(clv_trainer *t, clv_error *err)
{
    CLV_TRY(clv_require(t != NULL, "clv_trainer_checkpoint_finish", "a trainer", err));
    return t->saving ? advance_save(t, true, err) : CLV_OK;
}

int64_t clv_trainer_checkpoint_in_progress(const clv_trainer *t)
{
    return t && t->saving ? t->saving->step : -1;
}

void clv_trainer_abandon_checkpoint(clv_trainer *t)
{
    clv_checkpoint_save *s = t->saving;
    if (!s || s->process != getpid()) /* a child of fork has no such thread, and what it would remove is its parent's */
        return;
    join_writer(s);
    if (s->status == CLV_OK && !s->ends && clv_session_is_multi_process(t->session))
        s->status = CLV_ECANCELLED;
    end_save(t, NULL);
}
