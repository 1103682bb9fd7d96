/* saving.c - writing a checkpoint while the training goes on, or waits.
 *
 *   all, together       agree on a place, and begin its files                     clv_trainer_checkpoint
 *   each, for itself    writes what its ranks hold: the session's state while it waits, or a copy of it, by a thread
 *   all, together       when each has: they tell what they wrote                  clv_trainer_checkpoint_poll
 *   the first, alone    sums the weights up, puts the folder in its place, removes older ones; by a thread, too
 *   all, together       know that it is there                                     clv_trainer_checkpoint_poll
 *
 * The thread has no word with other processes. Of one process it does the third and fourth line as well. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/thread.h"
#include "io/folder.h"
#include "io/temporary.h"
#include "runtime/peers.h"
#include "runtime/shares.h"
#include "train/checkpoints.h"
#include "train/state.h"

static const char saving_what[] = "saving a checkpoint";
enum { KEPT = 2 };

typedef struct clv_saving {
    clv_trainer *trainer;
    char *folder, *path; /* of all checkpoints; of this one */
    char *temporary;     /* where it is written */
    int64_t step;
    clv_checkpoints_keep keep;
    clv_new_folder made; /* by the first process */
    clv_state_writing *state;
    clv_session *copy; /* what is written; NULL: the session, which waits, or all is written */
    bool background;   /* threads write */
    bool ends;         /* all have written: the first one ends it */
    bool runs;         /* the thread is to be joined */
    pthread_t thread;
    pid_t process; /* that has the thread */
    atomic_bool done;
    clv_status status; /* of what this process has done; the thread's until it is joined */
    clv_error why;
} clv_saving;

static void free_saving(clv_saving *s)
{
    if (!s)
        return;
    clv_state_free(s->state);
    clv_session_free_capture(s->copy);
    free(s->folder);
    free(s->path);
    free(s->temporary);
    free(s);
}

static clv_status new_saving(clv_saving **out, clv_trainer *t, const char *folder, const clv_checkpoints_keep *keep,
                             clv_error *err)
{
    clv_saving *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, folder, sizeof *s);
    *s = (clv_saving){.trainer = t, .step = t->step, .keep = *keep, .made.lock = -1, .process = getpid()};
    s->why.rank = -1;
    s->folder = strdup(folder);
    s->path = clv_checkpoints_path(folder, t->step);
    *out = s;
    return s->folder && s->path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
}

/* ---- each for itself ---- */

/* By the first process, when all of the folder's files are there but those that are one for all. */
static clv_status put_in_place(clv_saving *s, clv_error *err)
{
    CLV_TRY(clv_state_end(s->state, err));
    CLV_TRY(clv_new_folder_commit(&s->made, err));
    CLV_TRY(clv_checkpoints_point_to(s->folder, s->step, err));
    clv_checkpoints_prune(s->folder, s->step, &s->keep);
    return CLV_OK;
}

static void write_part(clv_saving *s)
{
    const clv_session *session = s->trainer->session;
    s->status = clv_state_write(s->state, s->copy ? s->copy : session, &s->why);
    clv_session_free_capture(s->copy);
    s->copy = NULL;
    if (s->status == CLV_OK && !clv_session_has_peers(session))
        s->status = put_in_place(s, &s->why);
}

/* A thread's main. */
static void *do_part(void *arg)
{
    clv_saving *s = arg;
    const clv_trainer *t = s->trainer;
    if (t->on_write && s->background)
        t->on_write(t->on_write_arg);
    if (s->ends)
        s->status = put_in_place(s, &s->why);
    else
        write_part(s);
    atomic_store_explicit(&s->done, true, memory_order_release);
    return NULL;
}

static void start_part(clv_saving *s)
{
    atomic_store_explicit(&s->done, false, memory_order_relaxed);
    s->runs = s->background && clv_thread_start(&s->thread, NULL, do_part, s) == 0;
    if (!s->runs)
        do_part(s);
}

static void join_part(clv_saving *s)
{
    if (s->runs)
        pthread_join(s->thread, NULL);
    s->runs = false;
}

/* ---- all together ---- */

/* The first process: the place of a new checkpoint. One of as many steps stays until this one is whole. */
static clv_status make_place(clv_new_folder *out, const clv_trainer *t, const char *folder, const char *path,
                             clv_error *err)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return clv_fail_errno(err, "make the folder", folder);
    CLV_TRY(clv_checkpoints_check_newest(t, folder, err));
    clv_checkpoints_sweep(folder);
    return clv_new_folder_replace(out, path, err);
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

static clv_status prepare(clv_saving *s, clv_error *err)
{
    const clv_trainer *t = s->trainer;
    clv_status status = clv_session_leads(t->session) ? make_place(&s->made, t, s->folder, s->path, err) : CLV_OK;
    CLV_TRY(agree_on_place(&s->temporary, t, &s->made, s->path, status, err));
    return clv_state_begin(&s->state, t, s->temporary, err);
}

/* Where one process has no memory for a copy, the training of all waits. */
static void copy_states(clv_saving *s)
{
    const clv_trainer *t = s->trainer;
    int64_t none;
    clv_status status = clv_session_capture(&s->copy, t->session, clv_state_is_saved, t, NULL);
    s->background = clv_session_agree(t->session, saving_what, status, 0, &none, NULL) == CLV_OK;
    if (s->background)
        return;
    clv_session_free_capture(s->copy);
    s->copy = NULL;
}

static clv_status end_saving(clv_trainer *t, clv_error *err)
{
    clv_saving *s = t->saving;
    clv_status status = s->status;
    if (status == CLV_OK)
        t->saved = clv_checkpoints_place(s->path, s->step);
    else
        clv_new_folder_abandon(&s->made, &s->why);
    if (err && status != CLV_OK && err->code == CLV_OK)
        *err = s->why;
    t->saving = NULL;
    free_saving(s);
    return status;
}

/* When all have done their parts: begins the next ones; false: there are none. */
static bool begin_next(clv_saving *s)
{
    const clv_trainer *t = s->trainer;
    join_part(s);
    s->status = clv_trainer_agree(t, s->status, &s->why);
    if (s->status != CLV_OK || s->ends || !clv_session_has_peers(t->session))
        return false;
    s->ends = true;
    s->status = clv_state_tell(s->state, &s->why);
    if (s->status == CLV_OK && clv_session_leads(t->session))
        start_part(s);
    return s->status == CLV_OK;
}

/* Whether all have done their parts. */
static clv_status all_done(bool *all, clv_saving *s, clv_error *err)
{
    int64_t busy = s->runs && !atomic_load_explicit(&s->done, memory_order_acquire);
    CLV_TRY(clv_trainer_most(s->trainer, busy, &busy, err));
    *all = busy == 0;
    return CLV_OK;
}

static clv_status bring_on(clv_trainer *t, bool wait, clv_error *err)
{
    bool all = true;
    do {
        if (!wait)
            CLV_TRY(all_done(&all, t->saving, err));
        if (!all)
            return CLV_OK;
    } while (begin_next(t->saving));
    return end_saving(t, err);
}

/* Whether the last checkpoint is this one, by whatever name its folder is called, and there still: as the first process
 * sees it, in all. */
static clv_status ask_saved(bool *is, const clv_trainer *t, const char *path, clv_status status, clv_error *err)
{
    int64_t mine = status == CLV_OK && clv_session_leads(t->session) && t->saved.step == t->step &&
                   clv_checkpoints_is(&t->saved, path);
    CLV_TRY(clv_session_agree(t->session, saving_what, status, mine, &mine, err));
    *is = mine != 0;
    return CLV_OK;
}

clv_status clv_trainer_checkpoint(clv_trainer *t, const char *folder, const clv_trainer_checkpoint_options *options,
                                  clv_error *err)
{
    static const char call[] = "clv_trainer_checkpoint";
    clv_trainer_checkpoint_options o;
    clv_saving *s = NULL;
    bool is_saved = false;
    CLV_TRY(clv_require(t && folder, call, "a trainer and a folder", err));
    CLV_TRY(clv_take_options(&o, sizeof o, offsetof(clv_trainer_checkpoint_options, keep_every), options, call, err));
    if (o.keep < 0 || o.keep_every < 0)
        return clv_fail(err, CLV_EINVAL,
                        "%s: keep is %d, keep_every %lld; valid: 0 (which is %d, and no more) and above", call, o.keep,
                        (long long)o.keep_every, KEPT);
    CLV_TRY(clv_trainer_checkpoint_finish(t, err));
    const clv_checkpoints_keep keep = {o.keep > 0 ? o.keep : KEPT, o.keep_every};
    clv_status status = new_saving(&s, t, folder, &keep, err);
    status = ask_saved(&is_saved, t, s ? s->path : NULL, status, err);
    if (status != CLV_OK || is_saved) {
        free_saving(s);
        return status;
    }
    t->saving = s;
    s->status = prepare(s, &s->why);
    if (s->status != CLV_OK)
        return end_saving(t, err);
    if (o.background)
        copy_states(s);
    start_part(s);
    return s->background ? CLV_OK : bring_on(t, true, err);
}

clv_status clv_trainer_checkpoint_poll(clv_trainer *t, clv_error *err)
{
    CLV_TRY(clv_require(t != NULL, "clv_trainer_checkpoint_poll", "a trainer", err));
    return t->saving ? bring_on(t, false, err) : CLV_OK;
}

clv_status clv_trainer_checkpoint_finish(clv_trainer *t, clv_error *err)
{
    CLV_TRY(clv_require(t != NULL, "clv_trainer_checkpoint_finish", "a trainer", err));
    return t->saving ? bring_on(t, true, err) : CLV_OK;
}

int64_t clv_trainer_steps_saving(const clv_trainer *t)
{
    return t && t->saving ? t->saving->step : -1;
}

void clv_trainer_leave_saving(clv_trainer *t)
{
    clv_saving *s = t->saving;
    if (!s || s->process != getpid()) /* a child of fork has no such thread, and what it would remove is its parent's */
        return;
    join_part(s);
    if (s->status == CLV_OK && !s->ends && clv_session_has_peers(t->session))
        s->status = CLV_ECANCELLED;
    end_saving(t, NULL);
}
