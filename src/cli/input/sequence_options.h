/* sequence_options.h - options of commands that read sequences or JSON lines, and warnings about truncated, skipped or
 * duplicate sequences.
 */
#pragma once

#include "cleave/sequences.h"
#include "cli/parser/option_parser.h"

/* Lists on stderr the sequences that were truncated or skipped, and records with the same name or none. Whether none
 * was skipped. */
bool clv_sequences_print_warnings(const clv_sequences *sequences, const char *command);

#define CLV_SEQUENCES_OPTION(out)                                                                                      \
    CLV_OPT_FLAG("--truncate", out,                                                                                    \
                 "truncate sequences that are too long for the model; else they are skipped "                          \
                 "(exit 1)")
#define CLV_BATCH_TOKENS_OPTION(out) CLV_OPT_INT("--batch-tokens", out, 1, 1 << 24, "N", "tokens a batch, about (4096)")
#define CLV_SKIP_BAD_LINES_OPTION(out)                                                                                 \
    CLV_OPT_FLAG("--skip-bad-lines", out, "skip and count malformed JSON lines; else the first is an error")
