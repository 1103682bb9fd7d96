/* run_options.h - --threads, --check, --overlap, --seed and --dtype: option rows of how ranks run. */
#ifndef CLEAVE_CLI_OPTIONS_RUN_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/job/job_processes.h"

typedef struct clv_run_option {
    int64_t threads; /* a rank's */
    bool check;      /* as clv_session_options says it */
    clv_comm_option comm;
    bool overlap;                /* as clv_compile_options says it */
    bool every_process_runs_all; /* every process makes all of it, with all ranks */
} clv_run_option;

/* Rows of a command's option table. conflicts_with_: what leaves them nothing to say, or NULL. */
#define CLV_THREADS_OPTION(out_, conflicts_with_)                                                                      \
    {                                                                                                                  \
        .names = "-t, --threads", .kind = CLV_OPTION_INT, .out = (out_), .min = 1, .max = 1024, .value = "N",          \
        .host_local = true, .conflicts_with = (conflicts_with_),                                                       \
        .help = "threads a rank (1; none of -tp, --mesh, -t: all cores)"                                               \
    }
#define CLV_OVERLAP_OPTION(out_)                                                                                       \
    {                                                                                                                  \
        .names = "--overlap", .kind = CLV_OPTION_FLAG, .out = (out_), .advanced = true,                                \
        .help = "collectives run beside ops that do not need them: equal results, more memory"                         \
    }
#define CLV_RUN_OPTIONS(option)                                                                                        \
    CLV_THREADS_OPTION(&(option)->threads, NULL), CLV_COMM_OPTIONS(&(option)->comm),                                   \
        CLV_OVERLAP_OPTION(&(option)->overlap),                                                                        \
    {                                                                                                                  \
        .names = "--check", .kind = CLV_OPTION_FLAG, .out = &(option)->check, .advanced = true,                        \
        .help = "guard the memory of every op, and fail when one writes past its own or reads what is gone; slow"      \
    }
#define CLV_DTYPE_ROW(out_, value_, help_)                                                                             \
    {                                                                                                                  \
        .names = "--dtype", .kind = CLV_OPTION_CHOICE, .out = (out_), .value = (value_), .help = (help_)               \
    }
#define CLV_SEED_OPTION(out_, conflicts_with_, help_)                                                                  \
    {                                                                                                                  \
        .names = "-s, --seed", .kind = CLV_OPTION_INT, .out = (out_), .min = 0, .max = INT64_MAX, .value = "N",        \
        .conflicts_with = (conflicts_with_), .help = (help_)                                                           \
    }

#endif
