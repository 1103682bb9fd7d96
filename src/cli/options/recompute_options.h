/* recompute_options.h - --recompute none|selective|full and --regather: activation checkpointing options. */
#ifndef CLEAVE_CLI_OPTIONS_RECOMPUTE_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_RECOMPUTE_OPTIONS_H

#include <stdbool.h>

#include "cleave/program.h"

typedef struct clv_recompute_option {
    const char *mode; /* NULL: none */
    bool activations; /* --recompute-activations: selective */
} clv_recompute_option;

/* Rows of a command's option table. */
#define CLV_RECOMPUTE_OPTIONS(o)                                                                                       \
    {.names = "--recompute, --recompute-granularity",                                                                  \
     .kind = CLV_OPTION_CHOICE,                                                                                        \
     .out = &(o)->mode,                                                                                                \
     .value = "none|selective|full",                                                                                   \
     .help =                                                                                                           \
         "what of each block the backward pass makes again instead of keeping it: selective: what is cheap; full: "    \
         "all but its input (none)"},                                                                                  \
    {                                                                                                                  \
        .names = "--recompute-activations", .kind = CLV_OPTION_FLAG, .out = &(o)->activations,                         \
        .conflicts_with = "--recompute", .advanced = true, .help = "the same as --recompute selective"                 \
    }

#define CLV_REGATHER_OPTION(out_)                                                                                      \
    {                                                                                                                  \
        .names = "--regather", .kind = CLV_OPTION_FLAG, .out = (out_), .advanced = true,                               \
        .help = "the backward pass gathers again what the forward pass gathered, instead of keeping it"                \
    }

/* *out: a clv_recompute. */
clv_status clv_recompute_option_read(int64_t *out, const clv_recompute_option *option, clv_error *err);

#endif
