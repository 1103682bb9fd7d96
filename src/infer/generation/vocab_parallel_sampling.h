/* vocab_parallel_sampling.h - samples from vocabulary-sharded logits: processes all-gather top candidates instead of
 * logits.
 */
#pragma once

#include "cleave/session.h"
#include "infer/generation/sampling.h"

typedef struct clv_vocab_parallel_sampler {
    bool is_replicated; /* every process has all logits: nothing to gather */
    int n_shards;       /* outputs of a run: this process's shards, or one box of all logits */
    clv_output_box *shards;
    int64_t capacity; /* of shards */
    /* The rest is for logits that are not replicated. */
    int first_rank, ranks; /* first rank of this process; number of ranks */
    int64_t batch, vocab;
    int64_t max_candidates; /* per sequence */
    int64_t *local;         /* [1 + batch * max_candidates]: first_rank, then this process's candidates */
    int64_t *gathered;      /* [ranks][1 + batch * max_candidates] */
    int64_t n_gathered;     /* candidates per sequence in `gathered`; 0: none */
    double penalty;         /* repetition penalty that they have */
    bool *stale;            /* [batch] sequences that have grown since */
    clv_candidate *scratch; /* [vocab] */
} clv_vocab_parallel_sampler;

/* For a session of several processes, and a program with the output "logits"; raw: room for all of them. *s must be
 * zeros. Free with clv_vocab_parallel_sampler_free, also after a failure. */
clv_status clv_vocab_parallel_sampler_init(clv_vocab_parallel_sampler *s, const clv_session *session,
                                           const clv_program *program, void *raw, clv_error *err);
void clv_vocab_parallel_sampler_free(clv_vocab_parallel_sampler *s);

/* Copies the shards that a run left into logits [B,V]. */
void clv_vocab_parallel_sampler_copy_logits(float *logits, const clv_vocab_parallel_sampler *s, clv_dtype dtype);

/* Drops the gathered candidates: of an earlier run; of one sequence that has grown. */
void clv_vocab_parallel_sampler_invalidate(clv_vocab_parallel_sampler *s);
void clv_vocab_parallel_sampler_invalidate_sequence(clv_vocab_parallel_sampler *s, int64_t sequence);

/* Whether candidates suffice to sample, and take fewer bytes than logits. */
bool clv_vocab_parallel_sampler_suffices(const clv_vocab_parallel_sampler *s, const clv_sampling *sampling);

/* clv_sample of one sequence of a batch, with the penalty for the tokens that it has seen. batch_logits, batch_seen:
 * [B,V], of which this process's shards are read. All processes must make the same call. The first call gathers the
 * candidates of all sequences, later calls reuse them. *needs_all_logits: the candidates do not suffice after all, and
 * *token is not set (clv_sample_from_candidates). */
clv_status clv_vocab_parallel_sample(int64_t *token, bool *needs_all_logits, clv_vocab_parallel_sampler *s,
                                     const clv_session *session, const clv_sampling *sampling, int64_t sequence,
                                     int64_t position, const float *batch_logits, const bool *batch_seen,
                                     clv_error *err);
