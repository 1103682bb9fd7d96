/* copying_wire.c - mailboxes, and what other processes send to them or ask: see copying_wire.h. */
#include "comm/copying_wire.h"

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

void clv_copying_put(clv_mailbox *box, clv_message *m)
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

void clv_copying_close(clv_world *world)
{
    if (world->wire) {
        clv_lines_close(world->wire->lines);
        for (clv_wire_name *n = world->wire->names, *next; n; n = next) {
            next = n->next;
            free(n);
        }
        pthread_mutex_destroy(&world->wire->naming);
        pthread_mutex_destroy(&world->wire->asking);
        pthread_mutex_destroy(&world->wire->lock);
        pthread_cond_destroy(&world->wire->came);
        free(world->wire->gone);
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
static const char *keep_name(struct clv_wire *wire, const char *text, size_t size)
{
    pthread_mutex_lock(&wire->naming);
    clv_wire_name *n = wire->names;
    while (n && (strlen(n->text) != size || memcmp(n->text, text, size) != 0))
        n = n->next;
    if (!n && (n = calloc(1, sizeof *n + size + 1))) {
        memcpy(n->text, text, size);
        n->next = wire->names;
        wire->names = n;
    }
    pthread_mutex_unlock(&wire->naming);
    return n ? n->text : NULL;
}

static bool take_message(clv_world *world, const clv_frame *frame, const unsigned char *data)
{
    size_t bytes = (size_t)frame->bytes;
    clv_message *m = malloc(sizeof *m + bytes);
    const char *what = keep_name(world->wire, (const char *)data, (size_t)frame->what_bytes);
    if (!m || !what) { /* it is lost, and the link with it */
        free(m);
        return false;
    }
    *m = (clv_message){.set = frame->set,
                       .from = frame->from,
                       .step = frame->step,
                       .says = {.what = what, .tag = frame->tag},
                       .bytes = frame->bytes};
    memcpy(m->data, data + frame->what_bytes, bytes);
    clv_copying_put(&world->wire->boxes[frame->to], m);
    return true;
}

/* Says where the ranks of this process stand; those of a world that has failed do not where they failed any more. */
static void answer(clv_world *world, int process, const clv_frame *asked)
{
    clv_frame frame = {
        .kind = CLV_COPYING_STANDING, .step = asked->step, .bytes = world->here * (int64_t)sizeof(clv_standing)};
    clv_standing *here = calloc((size_t)world->here, sizeof *here);
    if (!here)
        return;
    pthread_mutex_lock(&world->lock); /* what notes are in may not go */
    for (int i = 0; i < world->here; i++)
        here[i] = clv_standing_of(world, world->first + i, asked->set);
    pthread_mutex_unlock(&world->lock);
    if (!clv_world_failed(world, NULL))
        (void)clv_lines_send(world->wire->lines, process, &frame, "", here);
    free(here);
}

static void take_answer(const clv_world *world, int process, const clv_frame *frame, const unsigned char *data)
{
    struct clv_wire *wire = world->wire;
    int first = world->firsts[process], n = world->firsts[process + 1] - first;
    pthread_mutex_lock(&wire->lock);
    if (wire->answers && frame->step == wire->question && frame->bytes == n * (int64_t)sizeof(clv_standing)) {
        memcpy(&wire->answers[first], data, (size_t)frame->bytes);
        for (int r = first; r < first + n; r++) {
            clv_standing *s = &wire->answers[r];
            s->rank = r;
            s->what[sizeof s->what - 1] = s->note[sizeof s->note - 1] = '\0';
        }
        wire->answered[process] = true;
        pthread_cond_signal(&wire->came);
    }
    pthread_mutex_unlock(&wire->lock);
}

/* From another process. */
static bool take_frame(void *arg, int process, const clv_frame *frame, unsigned char *data)
{
    clv_world *world = arg;
    const unsigned char *behind = data + frame->what_bytes;
    bool ok = true;
    if (frame->kind == CLV_COPYING_FAILURE && frame->bytes == (int64_t)sizeof(clv_error)) {
        clv_error error;
        memcpy(&error, behind, sizeof error);
        clv_threads_record(world, &error);
    } else if (frame->kind == CLV_COPYING_ASK) {
        answer(world, process, frame);
    } else if (frame->kind == CLV_COPYING_STANDING) {
        take_answer(world, process, frame, behind);
    } else if (frame->to >= world->first && frame->to < world->first + world->here) {
        ok = take_message(world, frame, data);
    }
    free(data);
    return ok;
}

static void take_end(void *arg, int process)
{
    clv_world *world = arg;
    atomic_store_explicit(&world->wire->gone[process], 1, memory_order_release);
}

/* Tells all other processes; those that do not answer have ended themselves. */
void clv_copying_tell(clv_world *world, const clv_error *error)
{
    clv_frame frame = {.kind = CLV_COPYING_FAILURE, .bytes = sizeof *error};
    for (int p = 0; p < world->processes; p++)
        if (p != world->me)
            (void)clv_lines_send(world->wire->lines, p, &frame, "", error);
}

/* Under the wire's lock. */
static bool all_answered(const clv_world *world)
{
    for (int p = 0; p < world->processes; p++)
        if (p != world->me && !world->wire->answered[p] && !atomic_load(&world->wire->gone[p]))
            return false;
    return true;
}

void clv_copying_stand(clv_world *world, int set, clv_standing *all)
{
    struct clv_wire *wire = world->wire;
    clv_deadline deadline = clv_deadline_in(ANSWER_MS * INT64_C(1000000));
    pthread_mutex_lock(&wire->asking);
    pthread_mutex_lock(&wire->lock);
    clv_frame frame = {.kind = CLV_COPYING_ASK, .set = set, .step = ++wire->question};
    wire->answers = all;
    memset(wire->answered, 0, (size_t)world->processes * sizeof *wire->answered);
    pthread_mutex_unlock(&wire->lock);
    for (int p = 0; p < world->processes; p++)
        if (p != world->me)
            (void)clv_lines_send(wire->lines, p, &frame, "", NULL);
    pthread_mutex_lock(&wire->lock);
    while (!all_answered(world) && !clv_world_failed(world, NULL) && clv_deadline_look(&deadline) > 0) {
        struct timespec until = clv_wall_time_in(SLICE_NS);
        pthread_cond_timedwait(&wire->came, &wire->lock, &until);
    }
    wire->answers = NULL;
    for (int r = 0; r < world->ranks; r++) {
        int p = clv_threads_process(world, r);
        all[r].silent = p != world->me && !wire->answered[p] && !atomic_load(&wire->gone[p]);
    }
    pthread_mutex_unlock(&wire->lock);
    pthread_mutex_unlock(&wire->asking);
}

static void init_locks(struct clv_wire *wire)
{
    pthread_mutex_init(&wire->naming, NULL);
    pthread_mutex_init(&wire->asking, NULL);
    pthread_mutex_init(&wire->lock, NULL);
    pthread_cond_init(&wire->came, NULL);
}

clv_status clv_copying_open(clv_world *world, const clv_links *links, clv_error *err)
{
    if (links && !links->socket)
        return clv_fail(err, CLV_EINVAL, "the transport 'copying' does not reach the processes of a job; valid: 'mpi'");
    world->wire = calloc(1, sizeof *world->wire);
    if (world->wire)
        init_locks(world->wire);
    if (world->wire)
        world->wire->boxes = clv_line_alloc((size_t)world->ranks, sizeof(clv_mailbox));
    if (!world->wire || !world->wire->boxes)
        return clv_fail_memory(err, "mailboxes", (size_t)world->ranks * sizeof(clv_mailbox));
    for (int r = 0; r < world->ranks; r++) {
        pthread_mutex_init(&world->wire->boxes[r].lock, NULL);
        pthread_cond_init(&world->wire->boxes[r].filled, NULL);
        world->wire->boxes[r].random = world->seed + (uint64_t)r;
    }
    world->wire->gone = calloc((size_t)world->processes, sizeof *world->wire->gone);
    world->wire->answered = calloc((size_t)world->processes, sizeof *world->wire->answered);
    if (!world->wire->gone || !world->wire->answered)
        return clv_fail_memory(err, "a world's processes", (size_t)world->processes * sizeof *world->wire->gone);
    return links ? clv_lines_open(&world->wire->lines, links, take_frame, take_end, world, err) : CLV_OK;
}
