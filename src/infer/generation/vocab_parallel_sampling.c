/* vocab_parallel_sampling.c - samples from vocabulary-sharded logits: processes all-gather top candidates instead of
 * logits.
 */
#include "infer/generation/vocab_parallel_sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory/grow.h"
#include "runtime/multi_process/multi_process.h"

_Static_assert(sizeof(clv_candidate) == sizeof(int64_t), "a candidate is gathered as one int64_t");

/* ---- shards of the logits ---- */

static clv_status find_logits(clv_program_tensor *out, const clv_program *program, clv_error *err)
{
    for (int i = 0;; i++) {
        *out = (clv_program_tensor){.size = sizeof *out};
        CLV_TRY(clv_program_tensor_at(program, i, out, err));
        if (!out->name || (out->kind == CLV_NAMED_OUTPUT && strcmp(out->name, "logits") == 0))
            return CLV_OK;
    }
}

typedef struct shard_list {
    clv_vocab_parallel_sampler *to;
    char *raw;
    size_t elem_size;
} shard_list;

/* A clv_owned_box_fn. Shards lie one behind the other in `raw`. */
static clv_status add_shard(void *arg, const clv_shard *box, clv_error *err)
{
    shard_list *list = arg;
    clv_vocab_parallel_sampler *s = list->to;
    CLV_TRY(clv_grow(&s->shards, &s->capacity, s->n_shards + 1, sizeof *s->shards, "shards of logits", err));
    s->shards[s->n_shards++] = (clv_output_box){.name = "logits", .box = *box, .data = list->raw};
    list->raw += (size_t)clv_shard_elems(box) * list->elem_size;
    return CLV_OK;
}

/* Candidates must take no more bytes than the logits. */
static clv_status make_room(clv_vocab_parallel_sampler *s, size_t elem_size, clv_error *err)
{
    s->max_candidates = s->vocab * (int64_t)elem_size / ((int64_t)sizeof(clv_candidate) * s->ranks);
    s->max_candidates = s->max_candidates > 1 ? s->max_candidates : 1;
    size_t words = (size_t)(1 + s->batch * s->max_candidates);
    s->local = calloc(words, sizeof *s->local);
    s->gathered = calloc(words * (size_t)s->ranks, sizeof *s->gathered);
    s->stale = calloc((size_t)s->batch, sizeof *s->stale);
    s->scratch = calloc((size_t)s->vocab, sizeof *s->scratch);
    return s->local && s->gathered && s->stale && s->scratch
               ? CLV_OK
               : clv_fail_memory(err, "candidates", words * (size_t)s->ranks * sizeof *s->gathered);
}

clv_status clv_vocab_parallel_sampler_init(clv_vocab_parallel_sampler *s, const clv_session *session,
                                           const clv_program *program, void *raw, clv_error *err)
{
    clv_program_tensor logits;
    int last;
    CLV_TRY(find_logits(&logits, program, err));
    shard_list list = {s, raw, clv_dtype_size(logits.type.dtype)};
    s->is_replicated = clv_session_each_process_has_all(session, &logits.type, &logits.layout);
    if (s->is_replicated) {
        const clv_shard whole = {.rank = 3, .hi = {logits.type.shape[0], 1, logits.type.shape[2]}};
        return add_shard(&list, &whole, err);
    }
    CLV_TRY(clv_session_for_each_box_of_process(session, &logits.type, &logits.layout, add_shard, &list, err));
    clv_session_local_ranks(session, &s->first_rank, &last);
    s->ranks = (int)clv_mesh_rank_count(clv_program_mesh(program));
    s->batch = logits.type.shape[0];
    s->vocab = logits.type.shape[2];
    return make_room(s, list.elem_size, err);
}

void clv_vocab_parallel_sampler_free(clv_vocab_parallel_sampler *s)
{
    free(s->shards);
    free(s->local);
    free(s->gathered);
    free(s->stale);
    free(s->scratch);
    *s = (clv_vocab_parallel_sampler){0};
}

void clv_vocab_parallel_sampler_copy_logits(float *logits, const clv_vocab_parallel_sampler *s, clv_dtype dtype)
{
    for (int p = 0; p < s->n_shards; p++) {
        const clv_shard *box = &s->shards[p].box;
        const char *from = s->shards[p].data;
        int64_t n = box->hi[2] - box->lo[2];
        for (int64_t b = box->lo[0]; b < box->hi[0]; b++) {
            clv_dtype_convert(CLV_F32, logits + b * s->vocab + box->lo[2], dtype, from, n);
            from += (size_t)n * clv_dtype_size(dtype);
        }
    }
}

/* ---- candidates ---- */

void clv_vocab_parallel_sampler_invalidate(clv_vocab_parallel_sampler *s)
{
    s->n_gathered = 0;
}

void clv_vocab_parallel_sampler_invalidate_sequence(clv_vocab_parallel_sampler *s, int64_t sequence)
{
    if (s->stale)
        s->stale[sequence] = true;
}

bool clv_vocab_parallel_sampler_suffices(const clv_vocab_parallel_sampler *s, const clv_sampling *sampling)
{
    int64_t needed = clv_sampling_candidates_needed(sampling, s->vocab);
    return needed > 0 && needed <= s->max_candidates;
}

/* The best k candidates of a sequence among this process's shards. */
static void find_best(clv_candidate *out, int64_t k, clv_vocab_parallel_sampler *s, int64_t sequence,
                      const float *logits, const bool *seen, double penalty)
{
    int64_t n = 0, row = sequence * s->vocab;
    for (int p = 0; p < s->n_shards; p++) {
        const clv_shard *box = &s->shards[p].box;
        bool has = box->lo[0] <= sequence && sequence < box->hi[0];
        for (int64_t i = box->lo[2]; has && i < box->hi[2]; i++)
            s->scratch[n++] = (clv_candidate){clv_penalized_logit(logits[row + i], seen[row + i], penalty), (int32_t)i};
    }
    clv_top_candidates(out, k, s->scratch, n);
}

static clv_status allgather_candidates(clv_vocab_parallel_sampler *s, const clv_session *session, int64_t k,
                                       double penalty, const float *logits, const bool *seen, clv_error *err)
{
    s->n_gathered = 0;
    s->local[0] = s->first_rank;
    for (int64_t b = 0; b < s->batch; b++)
        find_best((clv_candidate *)(s->local + 1 + b * k), k, s, b, logits, seen, penalty);
    CLV_TRY(clv_session_allgather(session, "the best tokens", s->local, (int)(1 + s->batch * k), s->gathered, err));
    s->n_gathered = k;
    s->penalty = penalty;
    memset(s->stale, 0, (size_t)s->batch * sizeof *s->stale);
    return CLV_OK;
}

/* The candidates of all processes, into s->scratch. Each process has one row, which begins with its first rank. *bound:
 * the largest logit that a process may hold beyond its candidates, if its row is full. */
static int64_t collect_candidates(clv_vocab_parallel_sampler *s, int64_t sequence, float *bound)
{
    int64_t n = 0;
    *bound = -INFINITY;
    for (int64_t r = 0; r < s->ranks; r++) {
        const int64_t *row = s->gathered + r * (1 + s->batch * s->n_gathered);
        const clv_candidate *best = (const clv_candidate *)(row + 1 + sequence * s->n_gathered);
        int64_t n_told = 0;
        while (row[0] == r && n_told < s->n_gathered && best[n_told].id >= 0)
            s->scratch[n++] = best[n_told++];
        if (n_told == s->n_gathered && best[n_told - 1].logit > *bound)
            *bound = best[n_told - 1].logit;
    }
    return n;
}

clv_status clv_vocab_parallel_sample(int64_t *token, bool *needs_all_logits, clv_vocab_parallel_sampler *s,
                                     const clv_session *session, const clv_sampling *sampling, int64_t sequence,
                                     int64_t position, const float *batch_logits, const bool *batch_seen,
                                     clv_error *err)
{
    int64_t k = clv_sampling_candidates_needed(sampling, s->vocab);
    double penalty = sampling->repetition_penalty;
    float bound;
    if (s->n_gathered != k || s->penalty != penalty || s->stale[sequence])
        CLV_TRY(allgather_candidates(s, session, k, penalty, batch_logits, batch_seen, err));
    int64_t n = collect_candidates(s, sequence, &bound);
    return clv_sample_from_candidates(token, needs_all_logits, sampling, s->scratch, n, bound, position, err);
}
