/* generation_timing.h - times prefill and decode of a generator over repetitions. */
#pragma once

#include "cleave/generate.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"
/* The timed work: a prompt, then n tokens, of `batch` sequences. */
typedef struct clv_generation_workload {
    int64_t prompt, n, batch, repetitions;
} clv_generation_workload;

/* Option rows -p, -n (at least least_), -b and -r of a struct with these fields. */
#define CLV_WORKLOAD_ROW(names_, out_, least_, most_, help_) CLV_OPT_INT(names_, out_, least_, most_, "N", help_)
#define CLV_WORKLOAD_OPTIONS(work, least_, prompt_help, n_help, most_repetitions, repetitions_help)                    \
    CLV_WORKLOAD_ROW("-p, --n-prompt", &(work)->prompt, least_, 1 << 20, prompt_help),                                 \
        CLV_WORKLOAD_ROW("-n, --n-gen", &(work)->n, least_, 1 << 20, n_help),                                          \
        CLV_WORKLOAD_ROW("-b, --batch", &(work)->batch, 1, 1 << 16, "sequences at once (1)"),                          \
        CLV_WORKLOAD_ROW("-r, --repetitions", &(work)->repetitions, 1, most_repetitions, repetitions_help)

/* Seconds of each repetition. Free with clv_generation_timing_free. */
typedef struct clv_generation_timing {
    double *prefill, *decode; /* [repetitions]; decode: of all n tokens */
    double first;             /* of the prompt in the warm-up, which compiles programs */
} clv_generation_timing;

clv_status clv_generation_timing_measure(clv_generation_timing *out, clv_generator *g,
                                         const clv_generation_workload *work, int64_t vocab, clv_error *err);
/* Adds the time of each op of a token (op_times.h), from one more run. */
clv_status clv_generation_op_times_add(clv_table *t, clv_generator *g, const clv_generation_workload *work,
                                       int64_t vocab, clv_error *err);
void clv_generation_timing_free(clv_generation_timing *times);

/* Resets the KV cache and runs the work once. */
clv_status clv_generation_workload_run(clv_generator *g, const clv_generation_workload *work, const int64_t *ids,
                                       double *prefill, double *decode, clv_error *err);
