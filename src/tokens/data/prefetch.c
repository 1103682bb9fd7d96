/* prefetch.c - background thread that prepares the next batch (double buffering). Two buffers: the thread fills one
 * while the other is used, and may fill the next as soon as it is asked for: so a source is never called by two
 * threads.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/threads/thread.h"
#include "cleave/data.h"

typedef struct buffer {
    int32_t *ids, *labels;
    uint8_t *mask;
} buffer;

struct clv_prefetch {
    clv_batch_source *source;
    void *arg;
    buffer buffers[2];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t step; /* of the batch that is being made, or that waits to be used; it goes to buffer step % 2 */
    bool made, ends;
    clv_status status; /* of what is made */
    clv_error why;
};

static const buffer *current(const clv_prefetch *p)
{
    return &p->buffers[p->step % 2];
}

/* The lock is free while the source works. */
static void make(clv_prefetch *p)
{
    const buffer *b = current(p);
    pthread_mutex_unlock(&p->lock);
    clv_error why = {.rank = -1};
    clv_status status = p->source(p->arg, p->step, b->ids, b->labels, b->mask, &why);
    pthread_mutex_lock(&p->lock);
    p->status = status;
    p->why = why;
    p->made = true;
    pthread_cond_broadcast(&p->moved);
}

static void *prefetch_thread(void *arg)
{
    clv_prefetch *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        if (p->made)
            pthread_cond_wait(&p->moved, &p->lock);
        else
            make(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static clv_status make_buffers(clv_prefetch *p, int64_t tokens, bool padded, clv_error *err)
{
    for (int i = 0; i < 2; i++) {
        buffer *b = &p->buffers[i];
        b->ids = calloc((size_t)tokens, sizeof *b->ids);
        b->labels = calloc((size_t)tokens, sizeof *b->labels);
        b->mask = padded ? calloc((size_t)tokens, 1) : NULL;
        if (!b->ids || !b->labels || (padded && !b->mask))
            return clv_fail_memory(err, "batches", (size_t)tokens * sizeof *b->ids);
    }
    return CLV_OK;
}

static void free_all(clv_prefetch *p)
{
    for (int i = 0; i < 2; i++) {
        free(p->buffers[i].ids);
        free(p->buffers[i].labels);
        free(p->buffers[i].mask);
    }
    pthread_cond_destroy(&p->moved);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

clv_status clv_prefetch_new(clv_prefetch **out, clv_batch_source *source, void *arg, int64_t tokens, int padded,
                            int64_t step, clv_error *err)
{
    CLV_TRY(clv_require(out && source, "clv_prefetch_new", "a source, and where the prefetch goes", err));
    if (tokens < 1 || tokens > INT32_MAX || step < 0)
        return clv_fail(err, CLV_EINVAL, "batches of %lld tokens from step %lld on; valid: 1 to %d, from 0 on",
                        (long long)tokens, (long long)step, INT32_MAX);
    clv_prefetch *p = calloc(1, sizeof *p);
    if (!p)
        return clv_fail_memory(err, "batches", sizeof *p);
    p->source = source;
    p->arg = arg;
    p->step = step;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->moved, NULL);
    clv_status status = make_buffers(p, tokens, padded != 0, err);
    if (status == CLV_OK && clv_thread_start(&p->thread, NULL, prefetch_thread, p) != 0)
        status = clv_fail(err, CLV_ENOMEM, "no thread can be started");
    if (status == CLV_OK)
        *out = p;
    else
        free_all(p);
    return status;
}

/* Hands a batch on, and lets the thread begin with the next; a failure stays. */
static clv_status hand_over_batch(clv_prefetch *p, const int32_t **ids, const int32_t **labels, const uint8_t **mask,
                                  clv_error *err)
{
    const buffer *b = current(p);
    if (p->status != CLV_OK) {
        if (err)
            *err = p->why;
        return p->status;
    }
    *ids = b->ids;
    *labels = b->labels;
    if (mask)
        *mask = b->mask;
    p->step++;
    p->made = false;
    pthread_cond_broadcast(&p->moved);
    return CLV_OK;
}

clv_status clv_prefetch_next(clv_prefetch *p, const int32_t **ids, const int32_t **labels, const uint8_t **mask,
                             clv_error *err)
{
    CLV_TRY(clv_require(p && ids && labels, "clv_prefetch_next", "a prefetch, and where the batch goes", err));
    pthread_mutex_lock(&p->lock);
    while (!p->made)
        pthread_cond_wait(&p->moved, &p->lock);
    clv_status status = hand_over_batch(p, ids, labels, mask, err);
    pthread_mutex_unlock(&p->lock);
    return status;
}

void clv_prefetch_free(clv_prefetch *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    free_all(p);
}
