/* recompute_options.h - --recompute none|selective|full and --reshard-after-forward: option rows. */
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

#define CLV_RESHARD_AFTER_FORWARD_OPTION(out_)                                                                         \
    {                                                                                                                  \
        .names = "--reshard-after-forward, --regather", .kind = CLV_OPTION_FLAG, .out = (out_), .advanced = true,      \
        .help = "free what the forward pass gathered, and gather it again in the backward pass"                        \
    }

clv_status clv_recompute_option_read(clv_recompute *out, const clv_recompute_option *option, clv_error *err);

#endif
