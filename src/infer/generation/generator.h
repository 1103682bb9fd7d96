/* generator.h - struct clv_generator; enlarges its batch and context for generate_text.c. */
#pragma once

#include <stdbool.h>

#include "cleave/generate.h"
#include "infer/generation/prefill_chunk.h"
#include "infer/generation/vocab_parallel_sampling.h"

typedef struct clv_generator_sequence {
    int32_t *ids;         /* [context] */
    bool *seen;           /* [V] whether the sequence contains a token; points into clv_generator.seen */
    int64_t done, length; /* tokens computed, and fed */
} clv_generator_sequence;

struct clv_generator {
    const clv_model *model;
    clv_generator_options options; /* batch 0: not set up yet */
    bool is_resizable;             /* batch and context follow from use */
    bool can_pad;                  /* chunks may be padded behind the sequence */
    bool is_busy;                  /* inside on_text of clv_generate: calls that change the generator fail */
    bool split_logits;             /* processes keep their shards of the logits, and sample together */
    bool finds_nonfinite;          /* during clv_generator_find_nonfinite, which must gather logits */
    bool is_sharded;               /* the last run left the logits sharded */
    int last_power;                /* log2 tokens of the last run's program */
    clv_session *session;
    clv_program *program[CLV_PREFILL_CHUNK_SIZES]; /* program i takes 2^i tokens per sequence; compiled at first use */
    clv_generator_sequence *sequences;             /* [B] */
    bool *seen;                                    /* [B,V] */
    float *logits, *penalized;                     /* [B,V]; [V] of one sequence with its repetition penalty */
    void *output;                                  /* [B,V] logits in the weights' dtype */
    clv_vocab_parallel_sampler sharded;            /* of several processes */
    clv_candidate *candidates;                     /* [V] scratch */
    int32_t *ids, *offsets;                        /* inputs of a run: [B,CLV_PREFILL_CHUNK_MAX], [B] */
    int32_t last_row;                              /* input "last": row of the sequence's last token in the chunk */
};

/* Enlarges a resizable generator to at least this size, which empties it. A generator of fixed size stays as it is. */
clv_status clv_generator_reserve(clv_generator *generator, int64_t batch, int64_t context, clv_error *err);
