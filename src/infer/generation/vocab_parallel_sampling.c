/* vocab_parallel_sampling.c - samples from vocabulary-sharded logits: processes all-gather top candidates instead of
 * logits.
 */
#include "infer/generation/vocab_parallel_sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/multi_process/multi_process.h"

_Static_assert(sizeof(clv_candidate) == sizeof(int64_t), "a candidate is told in a word");

/* ---- what is where ---- */

static clv_status find_logits(clv_program_tensor *out, const clv_program *program, clv_error *err)
{
    for (int i = 0;; i++) {
        *out = (clv_program_tensor){.size = sizeof *out};
        CLV_TRY(clv_program_tensor_at(program, i, out, err));
        if (!out->name || (out->kind == CLV_NAMED_OUTPUT && strcmp(out->name, "logits") == 0))
            return CLV_OK;
    }
}

typedef struct parts_to_list {
    clv_vocab_parallel *to;
    char *raw;
    size_t elem_size;
} parts_to_list;

/* A clv_owned_box_fn: parts lie one behind the other. */
static clv_status list_part(void *arg, const clv_shard *box, clv_error *err)
{
    parts_to_list *list = arg;
    clv_vocab_parallel *s = list->to;
    clv_output_box *grown = realloc(s->parts, ((size_t)s->n_parts + 1) * sizeof *grown);
    if (!grown)
        return clv_fail_memory(err, "parts of logits", ((size_t)s->n_parts + 1) * sizeof *grown);
    s->parts = grown;
    s->parts[s->n_parts++] = (clv_output_box){.name = "logits", .box = *box, .data = list->raw};
    list->raw += (size_t)clv_shard_elems(box) * list->elem_size;
    return CLV_OK;
}

/* Candidates are told while they take no more bytes than logits would. */
static clv_status make_room(clv_vocab_parallel *s, size_t elem_size, clv_error *err)
{
    s->most = s->vocab * (int64_t)elem_size / ((int64_t)sizeof(clv_candidate) * s->ranks);
    s->most = s->most > 1 ? s->most : 1;
    size_t words = (size_t)(1 + s->batch * s->most);
    s->mine = calloc(words, sizeof *s->mine);
    s->all = calloc(words * (size_t)s->ranks, sizeof *s->all);
    s->stale = calloc((size_t)s->batch, sizeof *s->stale);
    s->work = calloc((size_t)s->vocab, sizeof *s->work);
    return s->mine && s->all && s->stale && s->work
               ? CLV_OK
               : clv_fail_memory(err, "candidates", words * (size_t)s->ranks * sizeof *s->all);
}

clv_status clv_vocab_parallel_init(clv_vocab_parallel *s, const clv_session *session, const clv_program *program,
                                   void *raw, clv_error *err)
{
    clv_program_tensor logits;
    int last;
    CLV_TRY(find_logits(&logits, program, err));
    parts_to_list list = {s, raw, clv_dtype_size(logits.type.dtype)};
    s->everywhere = clv_session_each_process_has_all(session, &logits.type, &logits.layout);
    if (s->everywhere) {
        const clv_shard whole = {.rank = 3, .hi = {logits.type.shape[0], 1, logits.type.shape[2]}};
        return list_part(&list, &whole, err);
    }
    CLV_TRY(clv_session_each_owned_box(session, &logits.type, &logits.layout, list_part, &list, err));
    clv_session_local_ranks(session, &s->first, &last);
    s->ranks = (int)clv_mesh_rank_count(clv_program_mesh(program));
    s->batch = logits.type.shape[0];
    s->vocab = logits.type.shape[2];
    return make_room(s, list.elem_size, err);
}

void clv_vocab_parallel_free(clv_vocab_parallel *s)
{
    free(s->parts);
    free(s->mine);
    free(s->all);
    free(s->stale);
    free(s->work);
    *s = (clv_vocab_parallel){0};
}

void clv_vocab_parallel_scatter(float *logits, const clv_vocab_parallel *s, clv_dtype dtype)
{
    for (int p = 0; p < s->n_parts; p++) {
        const clv_shard *box = &s->parts[p].box;
        const char *from = s->parts[p].data;
        int64_t n = box->hi[2] - box->lo[2];
        for (int64_t b = box->lo[0]; b < box->hi[0]; b++) {
            clv_dtype_convert(CLV_F32, logits + b * s->vocab + box->lo[2], dtype, from, n);
            from += (size_t)n * clv_dtype_size(dtype);
        }
    }
}

/* ---- what is told ---- */

void clv_vocab_parallel_invalidate(clv_vocab_parallel *s)
{
    s->told = 0;
}

void clv_vocab_parallel_invalidate_sequence(clv_vocab_parallel *s, int64_t sequence)
{
    if (s->stale)
        s->stale[sequence] = true;
}

bool clv_vocab_parallel_is_enough(const clv_vocab_parallel *s, const clv_sampling *sampling)
{
    int64_t needed = clv_sampling_candidates_needed(sampling, s->vocab);
    return needed > 0 && needed <= s->most;
}

/* The best k of a sequence that this process hands on. */
static void find_best(clv_candidate *out, int64_t k, clv_vocab_parallel *s, int64_t sequence, const float *logits,
                      const bool *seen, double penalty)
{
    int64_t n = 0, row = sequence * s->vocab;
    for (int p = 0; p < s->n_parts; p++) {
        const clv_shard *box = &s->parts[p].box;
        bool has = box->lo[0] <= sequence && sequence < box->hi[0];
        for (int64_t i = box->lo[2]; has && i < box->hi[2]; i++)
            s->work[n++] = (clv_candidate){clv_penalized_logit(logits[row + i], seen[row + i], penalty), (int32_t)i};
    }
    clv_top_candidates(out, k, s->work, n);
}

static clv_status allgather_candidates(clv_vocab_parallel *s, const clv_session *session, int64_t k, double penalty,
                                       const float *logits, const bool *seen, clv_error *err)
{
    s->told = 0;
    s->mine[0] = s->first;
    for (int64_t b = 0; b < s->batch; b++)
        find_best((clv_candidate *)(s->mine + 1 + b * k), k, s, b, logits, seen, penalty);
    CLV_TRY(clv_session_allgather(session, "the best tokens", s->mine, (int)(1 + s->batch * k), s->all, err));
    s->told = k;
    s->penalty = penalty;
    memset(s->stale, 0, (size_t)s->batch * sizeof *s->stale);
    return CLV_OK;
}

/* Of all processes, in s->work; each has one row that begins with its rank. *left_out: the largest logit that a process
 * may have kept to itself, as it told as many as it could. */
static int64_t collect_candidates(clv_vocab_parallel *s, int64_t sequence, float *left_out)
{
    int64_t n = 0;
    *left_out = -INFINITY;
    for (int64_t r = 0; r < s->ranks; r++) {
        const int64_t *row = s->all + r * (1 + s->batch * s->told);
        const clv_candidate *best = (const clv_candidate *)(row + 1 + sequence * s->told);
        int64_t told = 0;
        while (row[0] == r && told < s->told && best[told].id >= 0)
            s->work[n++] = best[told++];
        if (told == s->told && best[told - 1].logit > *left_out)
            *left_out = best[told - 1].logit;
    }
    return n;
}

clv_status clv_vocab_parallel_sample(int64_t *token, clv_vocab_parallel *s, const clv_session *session,
                                     const clv_sampling *sampling, int64_t sequence, int64_t position,
                                     const float *logits, const bool *seen, clv_error *err)
{
    int64_t k = clv_sampling_candidates_needed(sampling, s->vocab);
    double penalty = sampling->repetition_penalty;
    float left_out;
    if (s->told != k || s->penalty != penalty || s->stale[sequence])
        CLV_TRY(allgather_candidates(s, session, k, penalty, logits, seen, err));
    int64_t n = collect_candidates(s, sequence, &left_out);
    return clv_sample_from_candidates(token, sampling, s->work, n, left_out, position, err);
}
