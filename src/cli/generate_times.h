/* generate_times.h - how long a model takes to read a prompt, and to write tokens after it, one at a time. */
#ifndef CLEAVE_CLI_GENERATE_TIMES_H
#define CLEAVE_CLI_GENERATE_TIMES_H

#include "cleave/generate.h"

/* What is repeated: n tokens behind a prompt, of as many sequences side by side. */
typedef struct clv_generate_work {
    int64_t prompt, n, batch, repetitions;
} clv_generate_work;

/* Seconds, of each repetition in their order; freed by clv_generate_times_free. */
typedef struct clv_generate_times {
    double *prefill, *decode; /* [repetitions]; decode: of all n */
    double first;             /* of the prompt in the run before them, which is not counted: programs are made in it */
} clv_generate_times;

clv_status clv_generate_times_take(clv_generate_times *out, clv_generator *g, const clv_generate_work *work,
                                   int64_t vocab, clv_error *err);
void clv_generate_times_free(clv_generate_times *times);

/* One run of it: what is in the cache is forgotten before. */
clv_status clv_generate_work_run(clv_generator *g, const clv_generate_work *work, const int64_t *ids, double *prefill,
                                 double *decode, clv_error *err);

#endif
