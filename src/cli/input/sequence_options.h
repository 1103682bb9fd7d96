/* sequence_options.h - options of commands that read sequences, and warnings about truncated, skipped or duplicate
 * ones.
 */
#ifndef CLEAVE_CLI_INPUT_SEQUENCE_OPTIONS_H
#define CLEAVE_CLI_INPUT_SEQUENCE_OPTIONS_H

#include <stdbool.h>

#include "cleave/sequences.h"

/* Lists on stderr what was cut, what was left out, and records whose names do not tell them apart; whether all were
 * used, be it in part. */
bool clv_sequences_print_warnings(const clv_sequences *sequences, const char *command);

/* The options of commands that read them. */
#define CLV_SEQUENCES_OPTION(field)                                                                                    \
    {                                                                                                                  \
        .names = "--truncate", .kind = CLV_OPTION_FLAG, .out = (field),                                                \
        .help = "cut sequences to the tokens that the model takes; else longer ones are left out (exit 1)"             \
    }

#define CLV_BATCH_TOKENS_OPTION(field)                                                                                 \
    {                                                                                                                  \
        .names = "--batch-tokens", .kind = CLV_OPTION_INT, .out = (field), .min = 1, .max = 1 << 24, .value = "N",     \
        .help = "tokens that run side by side, about (4096)"                                                           \
    }

#endif
