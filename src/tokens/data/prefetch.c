/* prefetch.c - prepares the next batch on a thread while the current one is used (double buffering). */
#include <stdlib.h>

#include "base/error.h"
#include "base/threads/thread.h"
#include "cleave/data.h"

typedef struct buffer {
    int32_t *ids, *labels;
    uint8_t *mask;
} buffer;

/* Between calls a thread fills buffers[step % 2]; the caller uses the other one. */
struct clv_prefetch {
    clv_batch_source *source;
    void *arg;
    buffer buffers[2];
    int64_t step; /* of the batch in preparation */
    bool running; /* the thread must be joined */
    pthread_t thread;
    clv_status status; /* result of the source; the thread's until it is joined */
    clv_error why;
};

static void *prepare(void *arg)
{
    clv_prefetch *p = arg;
    const buffer *b = &p->buffers[p->step % 2];
    p->why = (clv_error){.rank = -1};
    p->status = p->source(p->arg, p->step, b->ids, b->labels, b->mask, &p->why);
    return NULL;
}

/* Without a thread the batch is prepared here and now. */
static void start(clv_prefetch *p)
{
    p->running = clv_thread_start(&p->thread, NULL, prepare, p) == 0;
    if (!p->running)
        prepare(p);
}

static void join(clv_prefetch *p)
{
    if (p->running)
        pthread_join(p->thread, NULL);
    p->running = false;
}

static clv_status make_buffers(clv_prefetch *p, int64_t tokens, bool has_mask, clv_error *err)
{
    for (int i = 0; i < 2; i++) {
        buffer *b = &p->buffers[i];
        b->ids = calloc((size_t)tokens, sizeof *b->ids);
        b->labels = calloc((size_t)tokens, sizeof *b->labels);
        b->mask = has_mask ? calloc((size_t)tokens, 1) : NULL;
        if (!b->ids || !b->labels || (has_mask && !b->mask))
            return clv_fail_memory(err, "batches", (size_t)tokens * sizeof *b->ids);
    }
    return CLV_OK;
}

clv_status clv_prefetch_new(clv_prefetch **out, clv_batch_source *source, void *arg, int64_t tokens, int has_mask,
                            int64_t step, clv_error *err)
{
    CLV_TRY(clv_require(out && source, __func__, "out and a source", err));
    if (tokens < 1 || tokens > INT32_MAX || step < 0)
        return clv_fail(err, CLV_EINVAL, "batches of %lld tokens from step %lld on; valid: 1 to %d, from 0 on",
                        (long long)tokens, (long long)step, INT32_MAX);
    clv_prefetch *p = calloc(1, sizeof *p);
    if (!p)
        return clv_fail_memory(err, "batches", sizeof *p);
    *p = (clv_prefetch){.source = source, .arg = arg, .step = step};
    clv_status status = make_buffers(p, tokens, has_mask != 0, err);
    if (status != CLV_OK) {
        clv_prefetch_free(p);
        return status;
    }
    start(p);
    *out = p;
    return CLV_OK;
}

clv_status clv_prefetch_next(clv_prefetch *p, const int32_t **ids, const int32_t **labels, const uint8_t **mask,
                             clv_error *err)
{
    CLV_TRY(clv_require(p && ids && labels, __func__, "a prefetch, ids and labels", err));
    join(p);
    if (p->status != CLV_OK) {
        if (err)
            *err = p->why;
        return p->status;
    }
    const buffer *b = &p->buffers[p->step++ % 2];
    *ids = b->ids;
    *labels = b->labels;
    if (mask)
        *mask = b->mask;
    start(p);
    return CLV_OK;
}

void clv_prefetch_free(clv_prefetch *p)
{
    if (!p)
        return;
    join(p);
    for (int i = 0; i < 2; i++) {
        free(p->buffers[i].ids);
        free(p->buffers[i].labels);
        free(p->buffers[i].mask);
    }
    free(p);
}
