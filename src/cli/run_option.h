/* run_option.h - `-t N` and `--check`: how ranks run, as every command takes them that runs a model for its results. */
#ifndef CLEAVE_CLI_RUN_OPTION_H
#define CLEAVE_CLI_RUN_OPTION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct clv_run_option {
    int64_t threads; /* a rank's */
    bool check;      /* as clv_session_options says it */
} clv_run_option;

/* Rows of a command's option table. */
#define CLV_RUN_OPTIONS(option)                                                                                        \
    {.names = "-t, --threads",                                                                                         \
     .kind = CLV_OPTION_INT,                                                                                           \
     .out = &(option)->threads,                                                                                        \
     .min = 1,                                                                                                         \
     .max = 1024,                                                                                                      \
     .value = "N",                                                                                                     \
     .help = "threads a rank (1)"},                                                                                    \
    {                                                                                                                  \
        .names = "--check", .kind = CLV_OPTION_FLAG, .out = &(option)->check,                                          \
        .help = "guard the memory of every op, and fail when one writes past its own or reads what is gone; slow"      \
    }

#endif
