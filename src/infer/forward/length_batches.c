/* length_batches.c - groups sequences of similar length into padded batches of few shapes. */
#include "infer/forward/length_batches.h"

#include <stdlib.h>

#include "base/error.h"

enum { MIN_SEQ = 16 };

typedef struct by_length {
    int64_t n, index;
} by_length;

static int longest_first(const void *a, const void *b)
{
    const by_length *x = a, *y = b;
    int longer = (x->n < y->n) - (x->n > y->n);
    return longer ? longer : (x->index > y->index) - (x->index < y->index);
}

clv_status clv_length_batches_begin(clv_length_batches *out, const clv_sequences *all, int64_t batch_tokens,
                                    int64_t max_positions, clv_error *err)
{
    by_length *lengths = calloc((size_t)all->n + 1, sizeof *lengths);
    *out = (clv_length_batches){.all = all, .batch_tokens = batch_tokens, .max_positions = max_positions};
    int64_t room = batch_tokens > max_positions ? batch_tokens : max_positions;
    out->order = calloc((size_t)all->n + 1, sizeof *out->order);
    out->batch.index = calloc((size_t)room, sizeof *out->batch.index);
    out->batch.ids = calloc((size_t)room, sizeof *out->batch.ids);
    out->batch.mask = calloc((size_t)room, 1);
    if (!lengths || !out->order || !out->batch.index || !out->batch.ids || !out->batch.mask) {
        free(lengths);
        clv_length_batches_end(out);
        return clv_fail_memory(err, "batches", (size_t)room * sizeof *out->batch.ids);
    }
    for (int64_t i = 0; i < all->n; i++)
        lengths[i] = (by_length){all->item[i].n, i};
    qsort(lengths, (size_t)all->n, sizeof *lengths, longest_first);
    for (int64_t i = 0; i < all->n; i++)
        out->order[i] = lengths[i].index;
    free(lengths);
    return CLV_OK;
}

/* Few shapes, little padding: eight lengths between a power of two and the next. */
static int64_t padded(int64_t n, int64_t max_positions)
{
    int64_t step = 1;
    while (16 * step < n)
        step *= 2;
    n = (n + step - 1) / step * step;
    n = n < MIN_SEQ ? MIN_SEQ : n;
    return n < max_positions ? n : max_positions;
}

bool clv_length_batches_next(clv_length_batches *b, int64_t pad_token)
{
    clv_batch *batch = &b->batch;
    if (b->next == b->all->n)
        return false;
    batch->seq = padded(b->all->item[b->order[b->next]].n, b->max_positions);
    batch->rows = b->batch_tokens / batch->seq > 0 ? b->batch_tokens / batch->seq : 1;
    batch->rows = batch->rows < b->all->n ? batch->rows : b->all->n;
    for (int64_t r = 0; r < batch->rows; r++) {
        bool here = b->next < b->all->n && padded(b->all->item[b->order[b->next]].n, b->max_positions) == batch->seq;
        batch->index[r] = here ? b->order[b->next++] : -1;
        const clv_sequence *s = &b->all->item[here ? batch->index[r] : batch->index[0]];
        for (int64_t i = 0; i < batch->seq; i++) {
            batch->ids[r * batch->seq + i] = (int32_t)(i < s->n ? s->ids[i] : pad_token);
            batch->mask[r * batch->seq + i] = i < s->n;
        }
    }
    return true;
}

void clv_length_batches_end(clv_length_batches *b)
{
    free(b->order);
    free(b->batch.index);
    free(b->batch.ids);
    free(b->batch.mask);
    *b = (clv_length_batches){0};
}
