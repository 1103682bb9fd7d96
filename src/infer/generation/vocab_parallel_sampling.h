/* vocab_parallel_sampling.h - samples from vocabulary-sharded logits: processes all-gather top candidates instead of
 * logits.
 */
#ifndef CLEAVE_INFER_GENERATION_VOCAB_PARALLEL_SAMPLING_H
#define CLEAVE_INFER_GENERATION_VOCAB_PARALLEL_SAMPLING_H

#include "cleave/session.h"
#include "infer/generation/sampling.h"

typedef struct clv_vocab_parallel {
    bool everywhere; /* each process has all: there is nothing to learn */
    int n_parts;     /* what a run brings: the boxes that this process hands on, or one of all */
    clv_output_box *parts;
    /* What follows is of those that are not everywhere. */
    int first, ranks; /* the first rank here, and all ranks */
    int64_t batch, vocab;
    int64_t most;        /* candidates of a sequence, at most */
    int64_t *mine;       /* [1 + batch * most]: the first rank of this process, then candidates */
    int64_t *all;        /* [ranks][1 + batch * most] */
    int64_t told;        /* candidates of a sequence that `all` has; 0: none */
    double penalty;      /* for which they were found */
    bool *stale;         /* [B] of them, those whose sequence has grown since */
    clv_candidate *work; /* [V] */
} clv_vocab_parallel;

/* Of a session of several processes, and a program with the output "logits"; raw: room for all of them. *s is zeros
 * before. Free with clv_vocab_parallel_free, whatever it returns. */
clv_status clv_vocab_parallel_init(clv_vocab_parallel *s, const clv_session *session, const clv_program *program,
                                   void *raw, clv_error *err);
void clv_vocab_parallel_free(clv_vocab_parallel *s);

/* Brings what a run left in the parts to its place in logits [B,V]. */
void clv_vocab_parallel_scatter(float *logits, const clv_vocab_parallel *s, clv_dtype dtype);

/* What was told is of an earlier run; or of one sequence that has grown. */
void clv_vocab_parallel_invalidate(clv_vocab_parallel *s);
void clv_vocab_parallel_invalidate_sequence(clv_vocab_parallel *s, int64_t sequence);

/* Whether candidates are enough for a choice, and fewer than logits. */
bool clv_vocab_parallel_is_enough(const clv_vocab_parallel *s, const clv_sampling *sampling);

/* clv_sample of a sequence whose logits [B,V] are spread, with the penalty for the tokens that were seen [B,V]; all
 * processes make the same call. What one call learns of all sequences serves those that follow. *token is -1 where what
 * is told is not enough after all (clv_sample_from_candidates). */
clv_status clv_vocab_parallel_sample(int64_t *token, clv_vocab_parallel *s, const clv_session *session,
                                     const clv_sampling *sampling, int64_t sequence, int64_t position,
                                     const float *logits, const bool *seen, clv_error *err);

#endif
