/* generate_run.h - prompts continued side by side: tokens in, text out. */
#ifndef CLEAVE_CLI_GENERATE_RUN_H
#define CLEAVE_CLI_GENERATE_RUN_H

#include "cleave/generate.h"
#include "infer/stop.h"
#include "infer/text_stream.h"

/* A prompt and what becomes of it. */
typedef struct clv_continuation {
    uint64_t number;           /* of the sequence, for sampling */
    int64_t *prompt, n_prompt; /* tokens */
    int64_t n_made;            /* tokens sampled, the one that ended the text among them */
    bool full;                 /* there was no room for more */
    char *text;                /* what they spell */
    size_t size;
} clv_continuation;

typedef struct clv_generate_how {
    const clv_model_info *model;
    const clv_tokenizer *tokenizer;
    clv_sampling sampling;
    const char *const *stops; /* [n_stops] */
    int n_stops;
    int64_t n;   /* tokens to sample at most, for each */
    bool stream; /* of a single prompt: it and its text go to stdout as they come */
} clv_generate_how;

typedef struct clv_generate_seconds {
    double prompt, decode, sync; /* sync: of both, waiting for other ranks and moving their data */
} clv_generate_seconds;

/* Continues n prompts, at most as many as the generator has sequences. Adds to seconds. */
clv_status clv_generate_run(clv_generator *generator, const clv_generate_how *how, clv_continuation *const *list,
                            int64_t n, clv_generate_seconds *seconds, clv_error *err);

#endif
