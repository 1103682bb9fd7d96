/* lora_options.h - --lora-rank, --lora-alpha, --lora-dropout and --lora-targets. */
#ifndef CLEAVE_CLI_OPTIONS_LORA_OPTIONS_H
#define CLEAVE_CLI_OPTIONS_LORA_OPTIONS_H

#include "cleave/model.h"
#include "cli/parser/option_parser.h"

typedef struct clv_lora_option {
    int64_t rank; /* 0: none */
    double alpha; /* 0: the rank */
    double dropout;
    const char *targets;
} clv_lora_option;

/* Rows of a command's option table. */
#define CLV_LORA_OPTIONS(o, beside)                                                                                    \
    {.names = "--lora-rank",                                                                                           \
     .kind = CLV_OPTION_INT,                                                                                           \
     .out = &(o)->rank,                                                                                                \
     .min = 1,                                                                                                         \
     .max = 1 << 20,                                                                                                   \
     .value = "R",                                                                                                     \
     .conflicts_with = (beside),                                                                                       \
     .help = "train adapters of this rank (LoRA) beside the model's weights, which stay as they are"},                 \
        {.names = "--lora-alpha",                                                                                      \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(o)->alpha,                                                                                           \
         .real_min = 1e-6,                                                                                             \
         .real_max = 1e6,                                                                                              \
         .value = "A",                                                                                                 \
         .conflicts_with = (beside),                                                                                   \
         .advanced = true,                                                                                             \
         .help = "what they add is scaled by A / R (R)"},                                                              \
        {.names = "--lora-dropout",                                                                                    \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(o)->dropout,                                                                                         \
         .real_min = 0,                                                                                                \
         .real_max = 0.999999,                                                                                         \
         .value = "P",                                                                                                 \
         .conflicts_with = (beside),                                                                                   \
         .advanced = true,                                                                                             \
         .help = "the share of what they take that is 0 in a step (0)"},                                               \
    {                                                                                                                  \
        .names = "--lora-targets", .kind = CLV_OPTION_STRING, .out = &(o)->targets, .value = "NAME,...",               \
        .conflicts_with = (beside), .advanced = true,                                                                  \
        .help = "modules that get them, as PEFT's target_modules: q_proj,v_proj, or all-linear (all-linear)"           \
    }

/* What they say, in *taken; NULL where they name no rank. @return CLV_EINVAL for others of them without a rank */
clv_status clv_lora_option_read(const clv_lora_options **out, clv_lora_options *taken, const clv_lora_option *option,
                                clv_error *err);

#endif
