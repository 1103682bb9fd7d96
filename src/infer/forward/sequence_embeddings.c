/* sequence_embeddings.c - clv_embed: pooled or per-token last hidden states of sequences. */
#include "cleave/embed.h"

#include <stdio.h>

#include "infer/forward/forwarder.h"
#include "infer/forward/length_batches.h"
#include "models/model.h"

typedef struct embedding {
    clv_forwarder *forwarder;
    const clv_sequences *all;
    clv_embed_options options;
    int64_t width, max_tokens; /* hidden size; the model's maximum */
    float *hidden;             /* [tokens of a batch, width] */
    float *vector;             /* [width] */
    clv_embed_callback *take;
    void *arg;
} embedding;

static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    const clv_length_batches *b = arg;
    const clv_sequence *s = &b->all->item[b->batch.index[row]];
    snprintf(out, size, "%.64s: the hidden state of token %lld", s->name, (long long)token);
}

/* hidden [n, width] -> vector [width] */
static void pool(float *vector, clv_pooling how, const float *hidden, int64_t n, int64_t width)
{
    int64_t only = how == CLV_POOL_LAST ? n - 1 : 0;
    for (int64_t d = 0; d < width; d++) {
        double sum = 0;
        for (int64_t i = 0; how == CLV_POOL_MEAN && i < n; i++)
            sum += hidden[i * width + d];
        vector[d] = how == CLV_POOL_MEAN ? (float)(sum / (double)n) : hidden[only * width + d];
    }
}

static clv_status give(const embedding *e, int64_t i, const float *rows, clv_error *err)
{
    int64_t n = e->all->item[i].n;
    if (e->options.pooling == CLV_POOL_NONE)
        return e->take(e->arg, i, rows, n, e->width, err);
    pool(e->vector, e->options.pooling, rows, n, e->width);
    return e->take(e->arg, i, e->vector, 1, e->width, err);
}

static clv_status run_batch(const embedding *e, const clv_length_batches *b, clv_error *err)
{
    const clv_batch *batch = &b->batch;
    clv_forward_batch given = {
        .size = sizeof given, .batch = batch->rows, .seq = batch->seq, .ids = batch->ids, .mask = batch->mask};
    CLV_TRY(clv_forwarder_run_checked(e->forwarder, &given, e->hidden, e->options.allow_nonfinite, describe, b, err));
    for (int64_t r = 0; r < batch->rows; r++)
        if (batch->index[r] >= 0)
            CLV_TRY(give(e, batch->index[r], e->hidden + r * batch->seq * e->width, err));
    return CLV_OK;
}

static clv_status run(embedding *e, int64_t pad, clv_error *err)
{
    clv_length_batches b;
    int64_t tokens = e->options.batch_tokens, room = tokens > e->max_tokens ? tokens : e->max_tokens;
    CLV_TRY(clv_length_batches_begin(&b, e->all, tokens, e->max_tokens, err));
    e->hidden = malloc((size_t)(room * e->width) * sizeof *e->hidden);
    e->vector = malloc((size_t)e->width * sizeof *e->vector);
    clv_status status = e->hidden && e->vector
                            ? CLV_OK
                            : clv_fail_memory(err, "hidden states", (size_t)(room * e->width) * sizeof *e->hidden);
    while (status == CLV_OK && clv_length_batches_next(&b, pad))
        status = run_batch(e, &b, err);
    free(e->hidden);
    free(e->vector);
    clv_length_batches_end(&b);
    return status;
}

clv_status clv_embed(clv_forwarder *forwarder, const clv_sequences *sequences, const clv_embed_options *options,
                     clv_embed_callback *take, void *arg, clv_error *err)
{
    embedding e = {.forwarder = forwarder, .all = sequences, .take = take, .arg = arg};
    CLV_TRY(clv_require(sequences && take, __func__, "sequences, and what takes their vectors", err));
    CLV_TRY(clv_forwarder_require_result(forwarder, CLV_FORWARD_HIDDEN, __func__, err));
    CLV_TRY(clv_options_copy_in(&e.options, sizeof e.options, sizeof e.options, options, __func__, err));
    if (e.options.batch_tokens < 0 || e.options.pooling < CLV_POOL_MEAN || e.options.pooling > CLV_POOL_NONE)
        return clv_fail(err, CLV_EINVAL, "%s: batch_tokens %lld, pooling %d; valid: 0 and above, those of clv_pooling",
                        __func__, (long long)e.options.batch_tokens, (int)e.options.pooling);
    e.options.batch_tokens = e.options.batch_tokens ? e.options.batch_tokens : CLV_BATCH_TOKENS;
    const clv_model_config *config = &forwarder->model->config;
    e.width = config->hidden;
    e.max_tokens = config->max_positions;
    return run(&e, config->pad >= 0 ? config->pad : 0, err);
}
