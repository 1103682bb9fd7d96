/* mailbox.c - mailboxes: puts messages in random order; receives messages, failures and progress from other
 * processes.
 */
#include "comm/mailbox/mailbox.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

enum {
    SLICE_NS = 2000000, /* who waits looks at the world's state this often */
    MOST_LOOKS = 3,     /* that pass a message over */
    ANSWER_MS = 200,    /* until others have said where they stand; who has not by then is stopped */
};

/* ---- mailboxes ---- */

/* [0, n), of the mailbox' own numbers (Knuth's MMIX generator). */
static int draw(clv_mailbox *box, int n)
{
    box->random = box->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((box->random >> 33) % (uint64_t)n);
}

void clv_mailbox_put(clv_mailbox *box, clv_message *m)
{
    m->put_ns = clv_now_ns();
    pthread_mutex_lock(&box->lock);
    clv_message **at = &box->first;

    while (*at && draw(box, 2))
        at = &(*at)->next;
    m->looks = draw(box, MOST_LOOKS + 1);
    m->next = *at;
    *at = m;
    pthread_cond_signal(&box->filled);
    pthread_mutex_unlock(&box->lock);
}

/* ---- the wire ---- */

void clv_mailbox_close(clv_world *world)
{
    if (world->wire) {
        clv_socket_mesh_close(world->wire->mesh);
        for (clv_received_name *n = world->wire->names, *next; n; n = next) {
            next = n->next;
            free(n);
        }
        pthread_mutex_destroy(&world->wire->names_lock);
        pthread_mutex_destroy(&world->wire->query_lock);
        pthread_mutex_destroy(&world->wire->lock);
        pthread_cond_destroy(&world->wire->came);
        free(world->wire->closed);
        free(world->wire->answered);
    }
    for (int r = 0; world->wire && world->wire->boxes && r < world->ranks; r++) {
        clv_mailbox *box = &world->wire->boxes[r];

        for (clv_message *m = box->first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        pthread_mutex_destroy(&box->lock);
        pthread_cond_destroy(&box->filled);
        free(box->steps);
    }
    if (world->wire)
        free(world->wire->boxes);
    free(world->wire);
}

/* A string that lives as long as the world; NULL: out of memory. */
static const char *intern_name(struct clv_mailbox_world *wire, const char *text, size_t size)
{
    pthread_mutex_lock(&wire->names_lock);
    clv_received_name *n = wire->names;
    while (n && (strlen(n->text) != size || memcmp(n->text, text, size) != 0))
        n = n->next;
    if (!n && (n = calloc(1, sizeof *n + size + 1))) {
        memcpy(n->text, text, size);
        n->next = wire->names;
        wire->names = n;
    }
    pthread_mutex_unlock(&wire->names_lock);
    return n ? n->text : NULL;
}

static bool receive_message(clv_world *world, const clv_socket_frame *frame, const unsigned char *data)
{
    size_t bytes = (size_t)frame->bytes;
    clv_message *m = malloc(sizeof *m + bytes);
    const char *what = intern_name(world->wire, (const char *)data, (size_t)frame->what_bytes);
    if (!m || !what) { /* it is lost, and the link with it */
        free(m);
        return false;
    }
    *m = (clv_message){.set = frame->set,
                       .from = frame->from,
                       .step = frame->step,
                       .desc = {.what = what, .tag = frame->tag},
                       .bytes = frame->bytes};
    memcpy(m->data, data + frame->what_bytes, bytes);
    clv_mailbox_put(&world->wire->boxes[frame->to], m);
    return true;
}

/* Says where the ranks of this process stand; those of a world that has failed do not where they failed any more. */
static void answer(clv_world *world, int process, const clv_socket_frame *asked)
{
    clv_socket_frame frame = {
        .kind = CLV_MAILBOX_PROGRESS, .step = asked->step, .bytes = world->here * (int64_t)sizeof(clv_rank_progress)};
    clv_rank_progress *here = calloc((size_t)world->here, sizeof *here);
    if (!here)
        return;
    pthread_mutex_lock(&world->lock); /* what notes are in may not go */
    for (int i = 0; i < world->here; i++)
        here[i] = clv_rank_progress_read(world, world->first + i, asked->set);
    pthread_mutex_unlock(&world->lock);
    if (!clv_world_failed(world, NULL))
        (void)clv_socket_mesh_send(world->wire->mesh, process, &frame, "", here);
    free(here);
}

static void receive_answer(const clv_world *world, int process, const clv_socket_frame *frame,
                           const unsigned char *data)
{
    struct clv_mailbox_world *wire = world->wire;
    int first = world->firsts[process], n = world->firsts[process + 1] - first;
    pthread_mutex_lock(&wire->lock);
    if (wire->answers && frame->step == wire->question && frame->bytes == n * (int64_t)sizeof(clv_rank_progress)) {
        memcpy(&wire->answers[first], data, (size_t)frame->bytes);
        for (int r = first; r < first + n; r++) {
            clv_rank_progress *s = &wire->answers[r];
            s->rank = r;
            s->what[sizeof s->what - 1] = s->note[sizeof s->note - 1] = '\0';
        }
        wire->answered[process] = true;
        pthread_cond_signal(&wire->came);
    }
    pthread_mutex_unlock(&wire->lock);
}

/* From another process. */
static bool receive_frame(void *arg, int process, const clv_socket_frame *frame, unsigned char *data)
{
    clv_world *world = arg;
    const unsigned char *behind = data + frame->what_bytes;
    bool ok = true;
    if (frame->kind == CLV_MAILBOX_FAILURE && frame->bytes == (int64_t)sizeof(clv_error)) {
        clv_error error;
        memcpy(&error, behind, sizeof error);
        clv_world_record_failure(world, &error);
    } else if (frame->kind == CLV_MAILBOX_PROGRESS_QUERY) {
        answer(world, process, frame);
    } else if (frame->kind == CLV_MAILBOX_PROGRESS) {
        receive_answer(world, process, frame, behind);
    } else if (frame->to >= world->first && frame->to < world->first + world->here) {
        ok = receive_message(world, frame, data);
    }
    free(data);
    return ok;
}

static void handle_close(void *arg, int process)
{
    clv_world *world = arg;
    atomic_store_explicit(&world->wire->closed[process], 1, memory_order_release);
}

/* Tells all other processes; those that do not answer have ended themselves. */
void clv_mailbox_notify_failure(clv_world *world, const clv_error *error)
{
    clv_socket_frame frame = {.kind = CLV_MAILBOX_FAILURE, .bytes = sizeof *error};
    for (int p = 0; p < world->processes; p++)
        if (p != world->me)
            (void)clv_socket_mesh_send(world->wire->mesh, p, &frame, "", error);
}

/* Under the wire's lock. */
static bool all_answered(const clv_world *world)
{
    for (int p = 0; p < world->processes; p++)
        if (p != world->me && !world->wire->answered[p] && !atomic_load(&world->wire->closed[p]))
            return false;
    return true;
}

void clv_mailbox_query_progress(clv_world *world, int set, clv_rank_progress *all)
{
    struct clv_mailbox_world *wire = world->wire;
    clv_deadline deadline = clv_deadline_after(ANSWER_MS * INT64_C(1000000));
    pthread_mutex_lock(&wire->query_lock);
    pthread_mutex_lock(&wire->lock);
    clv_socket_frame frame = {.kind = CLV_MAILBOX_PROGRESS_QUERY, .set = set, .step = ++wire->question};
    wire->answers = all;
    memset(wire->answered, 0, (size_t)world->processes * sizeof *wire->answered);
    pthread_mutex_unlock(&wire->lock);
    for (int p = 0; p < world->processes; p++)
        if (p != world->me)
            (void)clv_socket_mesh_send(wire->mesh, p, &frame, "", NULL);
    pthread_mutex_lock(&wire->lock);
    while (!all_answered(world) && !clv_world_failed(world, NULL) && clv_deadline_remaining(&deadline) > 0) {
        struct timespec until = clv_wall_time_after(SLICE_NS);
        pthread_cond_timedwait(&wire->came, &wire->lock, &until);
    }
    wire->answers = NULL;
    for (int r = 0; r < world->ranks; r++) {
        int p = clv_world_process_of(world, r);
        all[r].unresponsive = p != world->me && !wire->answered[p] && !atomic_load(&wire->closed[p]);
    }
    pthread_mutex_unlock(&wire->lock);
    pthread_mutex_unlock(&wire->query_lock);
}

static void init_locks(struct clv_mailbox_world *wire)
{
    pthread_mutex_init(&wire->names_lock, NULL);
    pthread_mutex_init(&wire->query_lock, NULL);
    pthread_mutex_init(&wire->lock, NULL);
    pthread_cond_init(&wire->came, NULL);
}

clv_status clv_mailbox_open(clv_world *world, const clv_process_links *links, clv_error *err)
{
    if (links && !links->socket)
        return clv_fail(err, CLV_EINVAL, "the transport 'copying' does not reach the processes of a job; valid: 'mpi'");
    world->wire = calloc(1, sizeof *world->wire);
    if (world->wire)
        init_locks(world->wire);
    if (world->wire)
        world->wire->boxes = clv_cache_line_alloc((size_t)world->ranks, sizeof(clv_mailbox));
    if (!world->wire || !world->wire->boxes)
        return clv_fail_memory(err, "mailboxes", (size_t)world->ranks * sizeof(clv_mailbox));
    for (int r = 0; r < world->ranks; r++) {
        pthread_mutex_init(&world->wire->boxes[r].lock, NULL);
        pthread_cond_init(&world->wire->boxes[r].filled, NULL);
        world->wire->boxes[r].random = world->seed + (uint64_t)r;
    }
    world->wire->closed = calloc((size_t)world->processes, sizeof *world->wire->closed);
    world->wire->answered = calloc((size_t)world->processes, sizeof *world->wire->answered);
    if (!world->wire->closed || !world->wire->answered)
        return clv_fail_memory(err, "a world's processes", (size_t)world->processes * sizeof *world->wire->closed);
    return links ? clv_socket_mesh_open(&world->wire->mesh, links, receive_frame, handle_close, world, err) : CLV_OK;
}
