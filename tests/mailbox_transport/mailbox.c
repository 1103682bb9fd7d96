/* mailbox.c - mailboxes: puts messages in random order; receives messages, failures and progress from other
 * processes.
 */
#include "mailbox.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

enum {
    SLICE_NS = 2000000, /* interval at which a waiter checks whether the world has failed */
    MAX_DELAY = 3,      /* times that a message is passed over, at most */
    ANSWER_MS = 200,    /* timeout of a query; a process that has not answered by then is stopped */
};

/* ---- mailboxes ---- */

/* A random number in [0, n) (Knuth's MMIX generator). */
static int draw(mailbox *box, int n)
{
    box->random = box->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((box->random >> 33) % (uint64_t)n);
}

void mailbox_put(mailbox *box, message *m)
{
    m->put_ns = clv_now_ns();
    pthread_mutex_lock(&box->lock);
    message **at = &box->first;

    while (*at && draw(box, 2))
        at = &(*at)->next;
    m->deliver_after = draw(box, MAX_DELAY + 1);
    m->next = *at;
    *at = m;
    pthread_cond_signal(&box->filled);
    pthread_mutex_unlock(&box->lock);
}

/* ---- state of a world ---- */

static void free_mailbox(mailbox *box)
{
    for (message *m = box->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    pthread_mutex_destroy(&box->lock);
    pthread_cond_destroy(&box->filled);
    free(box->steps);
}

void mailbox_close(clv_world *world)
{
    mailbox_state *state = mailbox_of(world);
    if (!state)
        return;
    socket_mesh_close(state->mesh);
    for (received_name *n = state->names, *next; n; n = next) {
        next = n->next;
        free(n);
    }
    pthread_mutex_destroy(&state->names_lock);
    pthread_mutex_destroy(&state->query_lock);
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->came);
    free(state->closed);
    free(state->answered);
    for (int r = 0; state->boxes && r < world->ranks; r++)
        free_mailbox(&state->boxes[r]);
    free(state->boxes);
    free(state);
}

/* A string that lives as long as the world; NULL: out of memory. */
static const char *intern_name(mailbox_state *state, const char *text, size_t size)
{
    pthread_mutex_lock(&state->names_lock);
    received_name *n = state->names;
    while (n && (strlen(n->text) != size || memcmp(n->text, text, size) != 0))
        n = n->next;
    if (!n && (n = calloc(1, sizeof *n + size + 1))) {
        memcpy(n->text, text, size);
        n->next = state->names;
        state->names = n;
    }
    pthread_mutex_unlock(&state->names_lock);
    return n ? n->text : NULL;
}

static bool receive_message(clv_world *world, const socket_frame *frame, const unsigned char *data)
{
    size_t bytes = (size_t)frame->bytes;
    message *m = malloc(sizeof *m + bytes);
    const char *what = intern_name(mailbox_of(world), (const char *)data, (size_t)frame->what_bytes);
    if (!m || !what) { /* the message is lost: close the connection */
        free(m);
        return false;
    }
    *m = (message){.group_set = frame->group_set,
                   .from = frame->from,
                   .step = frame->step,
                   .desc = {.what = what, .tag = frame->tag},
                   .bytes = frame->bytes};
    memcpy(m->data, data + frame->what_bytes, bytes);
    mailbox_put(&mailbox_of(world)->boxes[frame->to], m);
    return true;
}

/* Answers a progress query; a world that has failed does not, as its ranks have gone on. */
static void answer(clv_world *world, int process, const socket_frame *asked)
{
    socket_frame frame = {
        .kind = MAILBOX_PROGRESS, .step = asked->step, .bytes = world->n_local * (int64_t)sizeof(clv_rank_progress)};
    clv_rank_progress *here = calloc((size_t)world->n_local, sizeof *here);
    if (!here)
        return;
    pthread_mutex_lock(&world->lock); /* keeps the notes' memory */
    for (int i = 0; i < world->n_local; i++)
        here[i] = clv_local_rank_progress(world, world->first_local + i, asked->group_set);
    pthread_mutex_unlock(&world->lock);
    if (!clv_world_has_failed(world, NULL))
        (void)socket_mesh_send(mailbox_of(world)->mesh, process, &frame, "", here);
    free(here);
}

static void receive_answer(const clv_world *world, int process, const socket_frame *frame, const unsigned char *data)
{
    mailbox_state *state = mailbox_of(world);
    int first = world->first_ranks[process], n = world->first_ranks[process + 1] - first;
    pthread_mutex_lock(&state->lock);
    if (state->answers && frame->step == state->question && frame->bytes == n * (int64_t)sizeof(clv_rank_progress)) {
        memcpy(&state->answers[first], data, (size_t)frame->bytes);
        for (int r = first; r < first + n; r++) {
            clv_rank_progress *s = &state->answers[r];
            s->rank = r;
            s->what[sizeof s->what - 1] = s->activity[sizeof s->activity - 1] = '\0';
        }
        state->answered[process] = true;
        pthread_cond_signal(&state->came);
    }
    pthread_mutex_unlock(&state->lock);
}

/* Handles a frame of another process. */
static bool receive_frame(void *arg, int process, const socket_frame *frame, unsigned char *data)
{
    clv_world *world = arg;
    const unsigned char *behind = data + frame->what_bytes;
    bool ok = true;
    if (frame->kind == MAILBOX_FAILURE && frame->bytes == (int64_t)sizeof(clv_error)) {
        clv_error error;
        memcpy(&error, behind, sizeof error);
        clv_world_record_remote_failure(world, &error);
    } else if (frame->kind == MAILBOX_PROGRESS_QUERY) {
        answer(world, process, frame);
    } else if (frame->kind == MAILBOX_PROGRESS) {
        receive_answer(world, process, frame, behind);
    } else if (frame->to >= world->first_local && frame->to < world->first_local + world->n_local) {
        ok = receive_message(world, frame, data);
    }
    free(data);
    return ok;
}

static void handle_close(void *arg, int process)
{
    clv_world *world = arg;
    atomic_store_explicit(&mailbox_of(world)->closed[process], 1, memory_order_release);
}

/* Sends the failure to all other processes. */
void mailbox_notify_failure(clv_world *world, const clv_error *error)
{
    socket_frame frame = {.kind = MAILBOX_FAILURE, .bytes = sizeof *error};
    for (int p = 0; p < world->processes; p++)
        if (p != world->me)
            (void)socket_mesh_send(mailbox_of(world)->mesh, p, &frame, "", error);
}

/* Under the lock. */
static bool all_answered(const clv_world *world)
{
    for (int p = 0; p < world->processes; p++)
        if (p != world->me && !mailbox_of(world)->answered[p] && !atomic_load(&mailbox_of(world)->closed[p]))
            return false;
    return true;
}

void mailbox_query_progress(clv_world *world, int group_set, clv_rank_progress *all)
{
    mailbox_state *state = mailbox_of(world);
    clv_deadline deadline = clv_deadline_after(ANSWER_MS * INT64_C(1000000));
    pthread_mutex_lock(&state->query_lock);
    pthread_mutex_lock(&state->lock);
    socket_frame frame = {.kind = MAILBOX_PROGRESS_QUERY, .group_set = group_set, .step = ++state->question};
    state->answers = all;
    memset(state->answered, 0, (size_t)world->processes * sizeof *state->answered);
    pthread_mutex_unlock(&state->lock);
    for (int p = 0; p < world->processes; p++)
        if (p != world->me)
            (void)socket_mesh_send(state->mesh, p, &frame, "", NULL);
    pthread_mutex_lock(&state->lock);
    while (!all_answered(world) && !clv_world_has_failed(world, NULL) && clv_deadline_remaining(&deadline) > 0) {
        struct timespec until = clv_wall_time_after(SLICE_NS);
        pthread_cond_timedwait(&state->came, &state->lock, &until);
    }
    state->answers = NULL;
    for (int r = 0; r < world->ranks; r++) {
        int p = clv_world_process_of(world, r);
        all[r].unresponsive = p != world->me && !state->answered[p] && !atomic_load(&state->closed[p]);
    }
    pthread_mutex_unlock(&state->lock);
    pthread_mutex_unlock(&state->query_lock);
}

clv_status mailbox_open(clv_world *world, const clv_process_links *links, clv_error *err)
{
    size_t processes = (size_t)world->processes;
    mailbox_state *state = calloc(1, sizeof *state);
    if (links && !links->sockets) {
        free(state);
        return clv_fail(err, CLV_EINVAL, "the transport 'mailbox' does not reach the processes of a job; valid: 'mpi'");
    }
    if (!state)
        return clv_fail_memory(err, "mailboxes", sizeof *state);
    world->transport_state = state;
    pthread_mutex_init(&state->names_lock, NULL);
    pthread_mutex_init(&state->query_lock, NULL);
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->came, NULL);
    state->boxes = clv_cache_line_alloc((size_t)world->ranks, sizeof(mailbox));
    state->closed = calloc(processes, sizeof *state->closed);
    state->answered = calloc(processes, sizeof *state->answered);
    for (int r = 0; state->boxes && r < world->ranks; r++) {
        pthread_mutex_init(&state->boxes[r].lock, NULL);
        pthread_cond_init(&state->boxes[r].filled, NULL);
        state->boxes[r].random = world->seed + (uint64_t)r;
    }
    if (!state->boxes || !state->closed || !state->answered)
        return clv_fail_memory(err, "mailboxes", (size_t)world->ranks * sizeof(mailbox));
    return links ? socket_mesh_open(&state->mesh, links, receive_frame, handle_close, world, err) : CLV_OK;
}
