/* generation_timing.h - prefill and decode timing of a generator over repetitions. */
#ifndef CLEAVE_CLI_BENCH_GENERATION_TIMING_H
#define CLEAVE_CLI_BENCH_GENERATION_TIMING_H

#include "cleave/generate.h"
#include "cli/output/table.h"

/* What is repeated: n tokens behind a prompt, of as many sequences side by side. */
typedef struct clv_generation_workload {
    int64_t prompt, n, batch, repetitions;
} clv_generation_workload;

/* Rows of a command's option table for what has its fields: -p, -n, each least_ or more, -b and -r. */
#define CLV_WORKLOAD_ROW(names_, out_, least_, most_, help_)                                                           \
    {                                                                                                                  \
        .names = (names_), .kind = CLV_OPTION_INT, .out = (out_), .min = (least_), .max = (most_), .value = "N",       \
        .help = (help_)                                                                                                \
    }
#define CLV_WORKLOAD_OPTIONS(work, least_, prompt_help, n_help, most_repetitions, repetitions_help)                    \
    CLV_WORKLOAD_ROW("-p, --n-prompt", &(work)->prompt, least_, 1 << 20, prompt_help),                                 \
        CLV_WORKLOAD_ROW("-n, --n-gen", &(work)->n, least_, 1 << 20, n_help),                                          \
        CLV_WORKLOAD_ROW("-b, --batch", &(work)->batch, 1, 1 << 16, "sequences side by side (1)"),                     \
        CLV_WORKLOAD_ROW("-r, --repetitions", &(work)->repetitions, 1, most_repetitions, repetitions_help)

/* Seconds, of each repetition in their order; freed by clv_generation_timing_free. */
typedef struct clv_generation_timing {
    double *prefill, *decode; /* [repetitions]; decode: of all n */
    double first;             /* of the prompt in the run before them, which is not counted: programs are made in it */
} clv_generation_timing;

clv_status clv_generation_timing_measure(clv_generation_timing *out, clv_generator *g,
                                         const clv_generation_workload *work, int64_t vocab, clv_error *err);
/* What a token waits for, op by op (op_times.h), in one more run of the work. */
clv_status clv_generation_op_times_add(clv_table *t, clv_generator *g, const clv_generation_workload *work,
                                       int64_t vocab, clv_error *err);
void clv_generation_timing_free(clv_generation_timing *times);

/* One run of it: what is in the cache is forgotten before. */
clv_status clv_generation_workload_run(clv_generator *g, const clv_generation_workload *work, const int64_t *ids,
                                       double *prefill, double *decode, clv_error *err);

#endif
